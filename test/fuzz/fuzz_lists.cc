// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer: lists that a user writes (networks and interfaces, ports, connection methods) are taken as they stand, or
// refused with an item in quotes that is safe to print.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/ports/port_filter.h"
#include "common/ports/port_rails.h"
#include "common/ports/steering.h"
#include "common/ports/subnet_list.h"
#include "cpc/core/cpc_traits.h"
#include "cpc/oob/address_filter.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check_networks(const std::string& text, bool include) {
  using namespace fabric::cpc;
  const auto filter = AddressFilter::parse(text, include);
  if (!filter) {
    const std::string& why = filter.error().text;
    require(!why.empty() && why.front() == '"');
    require(std::all_of(why.begin(), why.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    return;
  }
  require(filter->text() == text && !filter->is_open());
  // What every list says of an address, its opposite says the other way round; and an item that is an address is found.
  const auto opposite = AddressFilter::parse(text, !include);
  HostAddress address;
  for (const bool is_v6 : {false, true}) {
    address.is_v6 = is_v6;
    for (std::size_t i = 0; i < address.bytes.size(); ++i) {
      address.bytes[i] = i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
    }
    require(filter->passes("eth0", address) != opposite->passes("eth0", address));
  }
  const auto both = AddressFilter::parse(text + ",eth0,0.0.0.0/0,::/0", true);
  require(both && both->passes("eth0", address) && both->passes("x", address));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_networks(text, true);
  check_networks(text, false);
  const auto ports = fabric::PortFilter::parse(text, true);
  require(ports ? !ports->items().empty() : !ports.error().text.empty());
  const auto rails = fabric::PortRails::parse(text);
  require(rails || rails.error().text.front() == '"');
  const auto subnets = fabric::SubnetList::parse(text);
  require(subnets ? subnets->text() == text && !subnets->is_open() : subnets.error().text.front() == '"');
  const auto everything = fabric::SubnetList::parse("::/0," + text);
  require(subnets.has_value() == everything.has_value() &&
          (!everything || everything->passes({}, fabric::Transport::kRoce, {})));
  const auto rules = fabric::parse_steering(text);
  require(rules ? rules->size() <= fabric::kMostSteeringRules : !rules.error().text.empty());
  for (const unsigned contexts : {1U, 3U, 64U}) {
    const auto table = rules ? fabric::steering_table(*rules, 7, contexts) : nullptr;
    require(table == nullptr || std::all_of(table->begin(), table->end(), [&](std::uint8_t context) {
              return context < contexts || context == fabric::kNotSteered;
            }));
  }
  constexpr std::array<fabric::cpc::CpcTraits, 2> kKnown{{{fabric::CpcKind{1}, "oob"}, {fabric::CpcKind{3}, "rdmacm"}}};
  const auto methods = fabric::cpc::parse_cpc_list(text, kKnown);
  require(methods ? *methods != 0 && (*methods & ~0b1010U) == 0 : !methods.error().text.empty());
  return 0;
}
