// SPDX-License-Identifier: BSD-3-Clause
//
// The rails parameter: which ports of a job belong together, where their subnets do not tell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/ports/port_filter.h"

namespace fabric {

/// A list of `device=rail` and `device:port=rail`. Ports of one rail talk to each other, and to no others; what is not in the list is
/// on rail 0. Each process says for itself which rails its ports are on, and peers learn it with their addresses, so that both
/// sides pair the same ports, whatever their lists say.
class PortRails {
 public:
  /// Every port is on rail 0.
  PortRails() = default;

  /// Parses "mlx5_0=1,mlx5_1:2=2". The error shows the item and the rule that it breaks.
  [[nodiscard]] static Result<PortRails> parse(std::string_view text);

  /// 1 to 255, or 0: the list does not have the port.
  [[nodiscard]] std::uint8_t rail_of(std::string_view device, std::uint8_t port) const noexcept;

 private:
  struct Item {
    PortFilter::Item port;
    std::uint8_t rail;
  };
  std::vector<Item> items_;
};

}  // namespace fabric
