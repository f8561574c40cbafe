// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "common/ports/process_info.h"
#include "cpc/oob/oob_addresses.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

using test::check_text;

HostAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d, std::uint8_t bits = 24) {
  return {false, bits, {a, b, c, d}};
}

HostAddress v6(std::uint8_t first, std::uint8_t last, std::uint8_t bits = 64) {
  HostAddress address{true, bits, {}};
  address.bytes[0] = first;
  address.bytes[15] = last;
  return address;
}

std::string order(const OobOffer& offer, const std::vector<HostAddress>& ours, bool same_node) {
  std::string text;
  for (const SocketAddress& address : addresses_to_try(offer, ours, same_node)) {
    text += to_string(address) + " ";
  }
  return text;
}

START_TEST(texts) {
  check_text(to_string(SocketAddress{v4(10, 0, 0, 1), 4000}), "10.0.0.1:4000");
  check_text(to_string(SocketAddress{v6(0xfd, 2), 1}), "[fd00::2]:1");
}
END_TEST

START_TEST(networks) {
  ck_assert(same_network(v4(10, 0, 0, 1), v4(10, 0, 0, 200)));
  ck_assert(!same_network(v4(10, 0, 0, 1), v4(10, 0, 1, 1)));
  ck_assert(same_network(v4(10, 0, 0, 1, 23), v4(10, 0, 1, 1)));
  ck_assert(same_network(v4(10, 0, 0, 1, 0), v4(99, 0, 1, 1)));
  ck_assert(!same_network(v4(10, 0, 0, 1, 32), v4(10, 0, 0, 2)));
  ck_assert(!same_network(v4(0, 0, 0, 0, 0), v6(0, 0, 0)));
  ck_assert(same_network(v6(0xfd, 1), v6(0xfd, 2)));
  ck_assert(is_loopback(v4(127, 3, 0, 1)) && is_loopback(v6(0, 1)) && !is_loopback(v6(0, 2)) && !is_loopback(v6(1, 1)));
}
END_TEST

START_TEST(near_addresses_first) {
  const OobOffer offer{
      4000, 6000, {v4(127, 0, 0, 1, 8), v4(172, 17, 0, 1), v4(192, 0, 2, 7), v4(10, 1, 0, 7), v6(0xfd, 7)}};
  const std::vector<HostAddress> ours{v4(127, 0, 0, 1, 8), v4(172, 17, 0, 1), v4(10, 1, 0, 8), v6(0xfd, 8)};
  check_text(order(offer, ours, false), "10.1.0.7:4000 [fd00::7]:6000 192.0.2.7:4000 ");
  check_text(order(offer, ours, true), "127.0.0.1:4000 172.17.0.1:4000 192.0.2.7:4000 10.1.0.7:4000 [fd00::7]:6000 ");
  // Two containers with names of their own and their host's network.
  check_text(order({4000, 0, ours}, ours, false), "172.17.0.1:4000 10.1.0.8:4000 ");
  OobOffer only_v6 = offer;
  only_v6.port_v4 = 0;
  check_text(order(only_v6, ours, false), "[fd00::7]:6000 ");
  // Everybody has the bridge, and no way leads to the peer but perhaps that.
  check_text(order({4000, 0, {v4(127, 0, 0, 1, 8), v4(172, 17, 0, 1)}}, ours, false), "172.17.0.1:4000 ");
}
END_TEST

START_TEST(this_host_has_addresses) {
  const auto addresses = local_addresses();
  ck_assert(addresses.has_value());
  ck_assert(std::any_of(addresses->begin(), addresses->end(),
                        [](const LocalAddress& one) { return one.interface == "lo" && is_loopback(one.host); }));
  for (const LocalAddress& address : *addresses) {
    ck_assert(!address.host.is_v6 || address.host.bytes[0] != 0xfe);
    ck_assert(address.host.prefix_bits > 0);
  }
}
END_TEST

OobOffer example() {
  return {4000, 0, {v4(10, 0, 0, 1), v6(0xfd, 1), v4(127, 0, 0, 1, 8)}};
}

START_TEST(offers_come_back) {
  const auto got = decode_oob_offer(encode(example()));
  ck_assert(got.has_value());
  ck_assert(*got == example());
  OobOffer big{1, 2, std::vector<HostAddress>(200, v6(0xfd, 1))};
  const auto blob = encode(big);
  ck_assert_uint_le(blob.size(), kMaxOfferBlob);
  ck_assert_uint_eq(decode_oob_offer(blob)->addresses.size(), kMaxHostAddresses);
}
END_TEST

START_TEST(malformed_offers_are_refused) {
  const std::vector<std::byte> good = encode(example());
  for (std::size_t size = 0; size < good.size(); ++size) {
    ck_assert(!decode_oob_offer(std::span(good).first(size)));
  }
  const auto refused = [&](std::size_t at, std::uint8_t value, const std::string& expected) {
    std::vector<std::byte> bad = good;
    bad[at] = static_cast<std::byte>(value);
    test::check_error_has(decode_oob_offer(bad), expected);
  };
  refused(0, 9, "version 9");
  refused(5, 65, "65 addresses");
  refused(5, 2, "too long");
  refused(6, 5, "address 0: address family is 5");
  refused(7, 33, "address 0: prefix length is 33");
  std::minstd_rand random(5);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> bad = good;
    bad.resize(random() % 60);
    for (unsigned flips = static_cast<unsigned>(random() % 8); flips > 0 && !bad.empty(); --flips) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    const auto got = decode_oob_offer(bad);
    ck_assert(got ? encode(*got) == bad : !got.error().text.empty());
  }
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite("oob_addresses", {texts, networks, near_addresses_first, this_host_has_addresses,
                                                   offers_come_back, malformed_offers_are_refused});
}
