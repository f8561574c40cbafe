// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/address_filter.h"

#include <net/if.h>

#include <algorithm>

#include "common/ports/subnet_list.h"

namespace fabric::cpc {
namespace {

tl::unexpected<Error> wrong(std::string_view item, const std::string& why) {
  std::string shown(item);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return failure("\"" + shown + "\" " + why);
}

Result<HostAddress> parse_network(std::string_view item) {
  const Result<Subnet> subnet = parse_subnet(item);
  if (!subnet) {
    return tl::unexpected(subnet.error());
  }
  HostAddress network;
  network.is_v6 = item.substr(0, item.find('/')).find(':') != std::string_view::npos;
  const unsigned skipped = network.is_v6 ? 0 : 96;  // of an IPv4-mapped address
  network.prefix_bits = static_cast<std::uint8_t>(subnet->bits - skipped);
  std::copy(subnet->prefix.begin() + skipped / 8, subnet->prefix.end(), network.bytes.begin());
  return network;
}

/// What tells an address from the name of an interface ("eth0:1" is one, of old).
bool looks_like_address(std::string_view item) {
  return item.find('/') != std::string_view::npos || parse_subnet(item).has_value();
}

}  // namespace

Result<AddressFilter> AddressFilter::parse(std::string_view text, bool include) {
  AddressFilter filter;
  filter.include_ = include;
  filter.text_ = text;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    if (Status added = filter.add(rest.substr(0, comma)); !added) {
      return tl::unexpected(std::move(added).error());
    }
    if (comma == std::string_view::npos) {
      return filter;
    }
    rest.remove_prefix(comma + 1);
  }
}

Status AddressFilter::add(std::string_view item) {
  if (item.empty()) {
    return wrong(item, "is neither an interface nor a network: write eth0 or 10.0.0.0/8, separated by commas");
  }
  if (item.find_first_of(" \t\n") != std::string_view::npos) {
    return wrong(item, "has a blank in it: items are separated by commas alone");
  }
  if (looks_like_address(item)) {
    const Result<HostAddress> network = parse_network(item);
    if (!network) {
      return tl::unexpected(network.error());
    }
    networks_.push_back(*network);
    return {};
  }
  if (item.size() >= IF_NAMESIZE) {
    return wrong(item, "is too long for the name of an interface, which has at most " +
                           std::to_string(IF_NAMESIZE - 1) + " characters");
  }
  interfaces_.emplace_back(item);
  return {};
}

bool AddressFilter::passes(std::string_view interface, const HostAddress& address) const noexcept {
  const bool listed =
      std::any_of(interfaces_.begin(), interfaces_.end(), [&](const std::string& name) { return name == interface; }) ||
      std::any_of(networks_.begin(), networks_.end(),
                  [&](const HostAddress& network) { return same_network(network, address); });
  return listed == include_;
}

std::vector<HostAddress> AddressFilter::choose(std::span<const LocalAddress> addresses) const {
  std::vector<HostAddress> chosen;
  for (const LocalAddress& one : addresses) {
    const bool is_chosen =
        std::any_of(chosen.begin(), chosen.end(), [&](const HostAddress& other) { return same_host(other, one.host); });
    if (passes(one.interface, one.host) && !is_chosen) {
      chosen.push_back(one.host);
    }
  }
  return chosen;
}

std::string AddressFilter::idle_items(std::span<const LocalAddress> addresses) const {
  std::string idle;
  const auto note = [&](const std::string& item, const auto& is_of) {
    if (include_ && std::none_of(addresses.begin(), addresses.end(), is_of)) {
      idle += (idle.empty() ? "" : ", ") + item;
    }
  };
  for (const std::string& name : interfaces_) {
    note(name, [&](const LocalAddress& one) { return one.interface == name; });
  }
  for (const HostAddress& network : networks_) {
    note(to_string(network) + "/" + std::to_string(network.prefix_bits),
         [&](const LocalAddress& one) { return same_network(network, one.host); });
  }
  return idle;
}

}  // namespace fabric::cpc
