// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/subnet_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace fabric {
namespace {

constexpr unsigned kMappedBits = 96;

tl::unexpected<Error> wrong(std::string_view item, const std::string& why) {
  std::string shown(item);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return failure("\"" + shown + "\" " + why);
}

}  // namespace

Result<Subnet> parse_subnet(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  const bool is_v6 = address.find(':') != std::string::npos;
  Subnet subnet;
  subnet.bits = 128;
  if (!is_v6) {
    subnet.prefix[10] = subnet.prefix[11] = 0xff;
  }
  // inet_pton takes nothing but whole addresses, neither "10.1" nor a scope.
  if (inet_pton(is_v6 ? AF_INET6 : AF_INET, address.c_str(), subnet.prefix.data() + (is_v6 ? 0 : kMappedBits / 8)) !=
      1) {
    return wrong(text, "has no IP address before the slash: write 10.0.0.0/8 or fd00::/16");
  }
  if (slash == std::string_view::npos) {
    return subnet;
  }
  const unsigned most = is_v6 ? 128 : 32;
  const std::string_view number = text.substr(slash + 1);
  unsigned bits = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
  if (error != std::errc{} || end != number.data() + number.size() || bits > most) {
    return wrong(text, "has no prefix length after the slash: it is a number from 0 to " + std::to_string(most));
  }
  subnet.bits = static_cast<std::uint8_t>(bits + 128 - most);
  return subnet;
}

bool is_within(const Subnet& subnet, const std::array<std::uint8_t, 16>& address) noexcept {
  const std::size_t bytes = subnet.bits / 8;
  const unsigned rest = subnet.bits % 8;
  return std::equal(address.begin(), address.begin() + static_cast<std::ptrdiff_t>(bytes), subnet.prefix.begin()) &&
         (rest == 0 || ((address[bytes] ^ subnet.prefix[bytes]) & (0xff00U >> rest) & 0xffU) == 0);
}

Result<SubnetList> SubnetList::parse(std::string_view text) {
  SubnetList list;
  list.text_ = text;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const auto subnet = parse_subnet(rest.substr(0, comma));
    if (!subnet) {
      return tl::unexpected(subnet.error());
    }
    list.subnets_.push_back(*subnet);
    if (comma == std::string_view::npos) {
      return list;
    }
    rest.remove_prefix(comma + 1);
  }
}

bool SubnetList::passes(const Gid& gid, Transport link, std::span<const InterfaceAddress> interfaces) const noexcept {
  const auto ip = ip_of_port(gid, link, interfaces);
  return is_open() || std::any_of(subnets_.begin(), subnets_.end(), [&](const Subnet& subnet) {
           return is_within(subnet, gid.raw) || (ip && is_within(subnet, ip->address));
         });
}

}  // namespace fabric
