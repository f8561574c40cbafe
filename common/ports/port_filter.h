// SPDX-License-Identifier: BSD-3-Clause
//
// The if_include and if_exclude parameters: which devices and ports a user wants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace fabric {

/// A list of `device` and `device:port`.
class PortFilter {
 public:
  struct Item {
    std::string device;
    std::uint8_t port = 0;  ///< 0: every port

    /// As the user writes it.
    [[nodiscard]] std::string text() const { return port == 0 ? device : device + ":" + std::to_string(port); }
  };

  /// Lets everything pass.
  PortFilter() = default;

  /// Parses "rxe0,mlx5_0:1". The error shows the item and the rule that it breaks.
  [[nodiscard]] static Result<PortFilter> parse(std::string_view text, bool include);

  [[nodiscard]] bool passes(std::string_view device, std::uint8_t port) const noexcept;

  /// False if no port of the device can pass, so that it need not be opened.
  [[nodiscard]] bool may_pass(std::string_view device) const noexcept;

  /// False: they are excluded.
  [[nodiscard]] bool includes() const noexcept { return include_; }
  [[nodiscard]] const std::vector<Item>& items() const noexcept { return items_; }

 private:
  std::vector<Item> items_;
  bool include_ = false;
};

}  // namespace fabric
