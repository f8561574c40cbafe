// SPDX-License-Identifier: BSD-3-Clause
//
// The oob_if_include and oob_if_exclude parameters: which network interfaces and networks of this host oob uses.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "cpc/oob/oob_addresses.h"

namespace fabric::cpc {

/// A list of interfaces ("eth0") and networks ("10.0.0.0/8", "fd00::/16"), as Open MPI's btl_tcp_if_include has it.
class AddressFilter {
 public:
  /// Lets everything pass.
  AddressFilter() = default;

  /// Parses "eth0,10.0.0.0/8". The error shows the item and the rule that it breaks.
  [[nodiscard]] static Result<AddressFilter> parse(std::string_view text, bool include);

  /// True if no list was given.
  [[nodiscard]] bool is_open() const noexcept { return !include_ && interfaces_.empty() && networks_.empty(); }

  [[nodiscard]] bool passes(std::string_view interface, const HostAddress& address) const noexcept;

  /// Those of `addresses` that pass, each once, though several interfaces may have the same.
  [[nodiscard]] std::vector<HostAddress> choose(std::span<const LocalAddress> addresses) const;

  /// The items of an include list that none of these addresses has, as "eth7, 10.0.0.0/8"; empty if there are none.
  [[nodiscard]] std::string idle_items(std::span<const LocalAddress> addresses) const;

  /// The list as it was written.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  [[nodiscard]] Status add(std::string_view item);

  std::string text_;
  std::vector<std::string> interfaces_;
  std::vector<HostAddress> networks_;  ///< prefix_bits count
  bool include_ = false;
};

}  // namespace fabric::cpc
