// SPDX-License-Identifier: BSD-3-Clause
//
// IP networks as users write them, and the subnets parameter: which networks a process's ports are on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/ports/gid_choice.h"

namespace fabric {

/// Parses "10.0.0.0/8", "fd00::/16", or an address alone, which is a network of one. The error shows the text and the rule.
[[nodiscard]] Result<Subnet> parse_subnet(std::string_view text);

/// True for the addresses of a subnet; IPv4 ones are IPv4-mapped.
[[nodiscard]] bool is_within(const Subnet& subnet, const std::array<std::uint8_t, 16>& address) noexcept;

/// A list of networks.
class SubnetList {
 public:
  /// Lets everything pass.
  SubnetList() = default;

  /// Parses "10.1.0.0/16,fd00:1::/32". The error shows the item and the rule that it breaks.
  [[nodiscard]] static Result<SubnetList> parse(std::string_view text);

  [[nodiscard]] bool is_open() const noexcept { return subnets_.empty(); }

  /// Of an entry of a port's GID table: an address of it is in one of the networks. That is the GID, or what the port's network
  /// interface has: on InfiniBand IPoIB's.
  [[nodiscard]] bool passes(const Gid& gid, Transport link,
                            std::span<const InterfaceAddress> interfaces) const noexcept;

  /// As the user wrote it.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::vector<Subnet> subnets_;
};

}  // namespace fabric
