// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>

#include <optional>
#include <string>
#include <vector>

#include "common/ports/gid_choice.h"
#include "common/ports/subnet_list.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using test::check_text;

Gid gid(const char* text) {
  Gid made;
  ck_assert_int_eq(inet_pton(AF_INET6, text, made.raw.data()), 1);
  return made;
}

GidEntry entry(std::uint32_t index, const char* text, GidType type) {
  return {index, gid(text), type};
}

/// The index of the entry of choice, -1 for none.
int chosen(const std::vector<GidEntry>& table, Transport link) {
  const auto best = choose_gid(table, link);
  return best ? static_cast<int>(best->index) : -1;
}

std::string subnet_text(const char* address, Transport link, const std::vector<InterfaceAddress>& interfaces = {}) {
  return to_string(subnet_of(gid(address), link, interfaces));
}

InterfaceAddress interface(const char* address, std::uint8_t bits) {
  return {gid(address).raw, bits};
}

START_TEST(knows_kinds_of_addresses) {
  ck_assert(is_ipv4_mapped(gid("::ffff:10.0.0.1")));
  ck_assert(!is_ipv4_mapped(gid("::10.0.0.1")));
  ck_assert(!is_ipv4_mapped(gid("1::ffff:10.0.0.1")));
  ck_assert(is_link_local(gid("fe80::1")));
  ck_assert(is_link_local(gid("febf::1")));
  ck_assert(!is_link_local(gid("fec0::1")));
  ck_assert(!is_link_local(gid("fd00::1")));
  ck_assert(is_zero(gid("::")));
  ck_assert(!is_zero(gid("::1")));
}
END_TEST

START_TEST(infiniband_uses_the_first) {
  const auto type = GidType::kInfiniBand;
  ck_assert_int_eq(chosen({entry(0, "fe80::2", type), entry(1, "fec0::2", type)}, Transport::kInfiniBand), 0);
  ck_assert_int_eq(chosen({entry(2, "fe80::2", type), entry(1, "fec0::2", type)}, Transport::kInfiniBand), 1);
  ck_assert_int_eq(chosen({entry(0, "::", type), entry(3, "fec0::2", type)}, Transport::kInfiniBand), 3);
}
END_TEST

START_TEST(an_index_has_8_bits) {
  const auto v2 = GidType::kRoceV2;
  const std::vector<GidEntry> table = {entry(300, "::ffff:10.0.0.2", v2), entry(255, "2001:db8::2", v2)};
  ck_assert_int_eq(chosen(table, Transport::kRoce), 255);
  ck_assert_int_eq(chosen({table.front()}, Transport::kRoce), -1);
}
END_TEST

START_TEST(ethernet_prefers_v2_then_ipv4) {
  const auto v1 = GidType::kRoceV1;
  const auto v2 = GidType::kRoceV2;
  std::vector<GidEntry> table = {entry(0, "fe80::2", v1),         entry(1, "fe80::2", v2),
                                 entry(2, "::ffff:10.0.0.2", v1), entry(3, "::ffff:10.0.0.2", v2),
                                 entry(4, "2001:db8::2", v1),     entry(5, "2001:db8::2", v2),
                                 entry(6, "::ffff:10.9.0.2", v2)};
  for (const int expected : {3, 6, 5, 1, 2, 4, 0}) {
    ck_assert_int_eq(chosen(table, Transport::kRoce), expected);
    std::erase_if(table, [expected](const GidEntry& e) { return e.index == static_cast<std::uint32_t>(expected); });
  }
  ck_assert_int_eq(chosen(table, Transport::kRoce), -1);
}
END_TEST

START_TEST(the_lowest_index_wins_in_any_order) {
  const auto v2 = GidType::kRoceV2;
  ck_assert_int_eq(chosen({entry(9, "::ffff:10.0.0.9", v2), entry(4, "::ffff:10.0.0.4", v2)}, Transport::kRoce), 4);
}
END_TEST

START_TEST(iwarp_has_one_entry_of_whatever_type) {
  ck_assert_int_eq(chosen({entry(0, "0200:0:1::", GidType::kInfiniBand)}, Transport::kIwarp), 0);
}
END_TEST

START_TEST(zero_entries_do_not_count) {
  ck_assert_int_eq(chosen({}, Transport::kInfiniBand), -1);
  ck_assert_int_eq(chosen({entry(0, "::", GidType::kInfiniBand)}, Transport::kInfiniBand), -1);
  ck_assert_int_eq(chosen({entry(0, "::", GidType::kRoceV2), entry(1, "fe80::2", GidType::kRoceV1)}, Transport::kRoce),
                   1);
}
END_TEST

START_TEST(infiniband_subnets_are_the_upper_half) {
  check_text(subnet_text("fe80::2:c903:1:2", Transport::kInfiniBand), "fe80::/64");
  // Interfaces have no say, even if one has that address.
  check_text(subnet_text("fec0:0:0:7::1", Transport::kInfiniBand, {interface("fec0:0:0:7::1", 16)}), "fec0:0:0:7::/64");
}
END_TEST

START_TEST(ethernet_subnets_come_from_the_interface) {
  const std::vector<InterfaceAddress> interfaces = {
      interface("::ffff:10.1.2.4", 104), interface("::ffff:10.1.2.3", 116), interface("2001:db8:1:ffff::3", 50),
      interface("::ffff:10.3.0.1", 128), interface("fe80::3", 64),          interface("2001::1", 0)};
  check_text(subnet_text("::ffff:10.1.2.4", Transport::kRoce, interfaces), "10.0.0.0/8");
  check_text(subnet_text("::ffff:10.1.250.3", Transport::kRoce, interfaces), "10.1.250.0/24");
  check_text(subnet_text("::ffff:10.1.2.3", Transport::kIwarp, interfaces), "10.1.0.0/20");
  check_text(subnet_text("2001:db8:1:ffff::3", Transport::kRoce, interfaces), "2001:db8:1:c000::/50");
  check_text(subnet_text("::ffff:10.3.0.1", Transport::kRoce, interfaces), "10.3.0.1/32");
  check_text(subnet_text("fe80::3", Transport::kRoce, interfaces), "fe80::/64");
  check_text(subnet_text("2001::1", Transport::kRoce, interfaces), "::/0");
}
END_TEST

START_TEST(subnets_without_an_interface_are_guessed) {
  check_text(subnet_text("::ffff:192.168.5.77", Transport::kRoce), "192.168.5.0/24");
  check_text(subnet_text("::ffff:127.64.1.1", Transport::kRoce), "127.0.0.0/8");
  check_text(subnet_text("fe80::a:b:c:d", Transport::kRoce), "fe80::/64");
  check_text(subnet_text("2001:db8:1:2:3:4:5:6", Transport::kIwarp), "2001:db8:1:2::/64");
}
END_TEST

/// siw and other iWARP devices have their MAC address for a GID.
START_TEST(iwarp_ports_are_found_by_their_mac) {
  InterfaceAddress v6 = interface("fe80::5", 64);
  InterfaceAddress v4 = interface("::ffff:10.78.0.1", 120);
  InterfaceAddress other = interface("::ffff:10.9.0.1", 104);
  v6.hardware = v4.hardware = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  other.hardware = {0x02, 0x11, 0x22, 0x33, 0x44, 0x56};
  const std::vector<InterfaceAddress> interfaces = {other, v6, v4};
  const Gid mac = gid("0211:2233:4455::");
  const auto ip = ip_of_port(mac, Transport::kIwarp, interfaces);
  ck_assert(ip && ip->address == v4.address);
  check_text(to_string(subnet_of(mac, Transport::kIwarp, interfaces)), "10.78.0.0/24");
  ck_assert(!ip_of_port(gid("0211:2233:4457::"), Transport::kIwarp, interfaces));
  ck_assert(!ip_of_port(Gid{}, Transport::kIwarp, {{interface("::ffff:127.0.0.1", 104)}}));  // lo has no MAC address
}
END_TEST

START_TEST(infiniband_ports_are_found_by_ipoib) {
  InterfaceAddress ipoib = interface("::ffff:10.5.0.7", 120);
  const Gid port = gid("fe80::2:c903:1:2");
  ipoib.hardware = {0x80, 0, 0x0c, 0x01};
  std::copy(port.raw.begin(), port.raw.end(), ipoib.hardware.begin() + 4);
  const auto ip = ip_of_port(port, Transport::kInfiniBand, {{ipoib}});
  ck_assert(ip && ip->address == ipoib.address);
  ck_assert(!ip_of_port(gid("fe80::2:c903:1:3"), Transport::kInfiniBand, {{ipoib}}));
}
END_TEST

START_TEST(roce_ports_have_their_gid_for_an_address) {
  InterfaceAddress known = interface("fe80::5", 64);
  known.interface = 7;
  const auto ip = ip_of_port(gid("fe80::5"), Transport::kRoce, {{known}});
  ck_assert(ip && ip->interface == 7);
  const auto guessed = ip_of_port(gid("::ffff:10.0.0.3"), Transport::kRoce, {});
  ck_assert(guessed && guessed->address == gid("::ffff:10.0.0.3").raw && guessed->interface == 0);
}
END_TEST

START_TEST(an_impossible_prefix_length_is_clipped) {
  const std::vector<InterfaceAddress> interfaces = {interface("::ffff:10.0.0.1", 255)};
  check_text(subnet_text("::ffff:10.0.0.1", Transport::kRoce, interfaces), "10.0.0.1/32");
}
END_TEST

START_TEST(peers_on_a_network_get_equal_subnets) {
  const std::vector<InterfaceAddress> ours = {interface("::ffff:10.0.3.1", 118)};
  const std::vector<InterfaceAddress> theirs = {interface("::ffff:10.0.0.9", 118)};
  ck_assert(subnet_of(gid("::ffff:10.0.3.1"), Transport::kRoce, ours) ==
            subnet_of(gid("::ffff:10.0.0.9"), Transport::kRoce, theirs));
}
END_TEST

START_TEST(texts_are_the_usual_ones) {
  check_text(to_string(gid("fe80::1")), "fe80::1");
  check_text(to_string(gid("::ffff:10.0.0.1")), "::ffff:10.0.0.1");
  check_text(to_string(Gid{}), "::");
  check_text(to_string(gid("2001:db8:1111:2222:3333:4444:5555:6666")), "2001:db8:1111:2222:3333:4444:5555:6666");
  check_text(to_string(Subnet{gid("::ffff:10.0.0.0").raw, 120}), "10.0.0.0/24");
  check_text(to_string(Subnet{gid("::ffff:0.0.0.0").raw, 96}), "0.0.0.0/0");
  check_text(to_string(Subnet{gid("::").raw, 80}), "::/80");
  check_text(to_string(Subnet{gid("::ffff:10.0.0.0").raw, 80}), "::ffff:10.0.0.0/80");  // not masked: a peer's nonsense
}
END_TEST

START_TEST(networks_are_read) {
  check_text(to_string(parse_subnet("10.1.0.0/16").value()), "10.1.0.0/16");
  check_text(to_string(parse_subnet("10.1.2.3").value()), "10.1.2.3/32");
  check_text(to_string(parse_subnet("0.0.0.0/0").value()), "0.0.0.0/0");
  check_text(to_string(parse_subnet("fd00:1::/32").value()), "fd00:1::/32");
  for (const char* text : {"", "10.1/16", "eth0", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.0/8x",
                           "fd00::/129", "fd00::%eth0/64", " 10.0.0.0/8"}) {
    ck_assert_msg(!parse_subnet(text), "\"%s\" is taken for a network", text);
  }
  test::check_error_has(SubnetList::parse("10.0.0.0/8,,fd00::/8"), "\"\" has no IP address before the slash");
  test::check_error_has(SubnetList::parse("10.0.0.0/8,10.0.0.0/40"), "it is a number from 0 to 32");
}
END_TEST

START_TEST(networks_have_their_addresses) {
  const auto has = [](const char* list, const char* address) {
    return SubnetList::parse(list).value().passes(gid(address), Transport::kRoce, {});
  };
  ck_assert(has("10.1.0.0/16", "::ffff:10.1.255.1") && !has("10.1.0.0/16", "::ffff:10.2.0.1"));
  ck_assert(has("10.1.4.0/22", "::ffff:10.1.7.1") && !has("10.1.4.0/22", "::ffff:10.1.8.1"));
  ck_assert(has("10.1.2.3", "::ffff:10.1.2.3") && !has("10.1.2.3", "::ffff:10.1.2.2"));
  ck_assert(has("fd00::/8,10.0.0.0/8", "fd12::1") && !has("fd00::/8,10.0.0.0/8", "fe80::1"));
  ck_assert(has("0.0.0.0/0", "::ffff:192.0.2.1") && !has("0.0.0.0/0", "fd12::1"));
  ck_assert(has("::/0", "::ffff:192.0.2.1"));
  ck_assert(SubnetList().passes(gid("fe80::1"), Transport::kRoce, {}));
}
END_TEST

START_TEST(a_network_has_infiniband_ports_by_ipoib) {
  InterfaceAddress ipoib = interface("::ffff:10.5.0.7", 120);
  const Gid port = gid("fe80::2:c903:1:2");
  std::copy(port.raw.begin(), port.raw.end(), ipoib.hardware.begin() + 4);
  const SubnetList list = SubnetList::parse("10.5.0.0/16").value();
  ck_assert(list.passes(port, Transport::kInfiniBand, {{ipoib}}));
  ck_assert(!list.passes(port, Transport::kInfiniBand, {}));
  ck_assert(SubnetList::parse("fe80::/64").value().passes(port, Transport::kInfiniBand, {}));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "gid_choice",
      {knows_kinds_of_addresses, infiniband_uses_the_first, an_index_has_8_bits, ethernet_prefers_v2_then_ipv4,
       the_lowest_index_wins_in_any_order, iwarp_has_one_entry_of_whatever_type, zero_entries_do_not_count,
       infiniband_subnets_are_the_upper_half, ethernet_subnets_come_from_the_interface,
       subnets_without_an_interface_are_guessed, iwarp_ports_are_found_by_their_mac,
       infiniband_ports_are_found_by_ipoib, roce_ports_have_their_gid_for_an_address,
       an_impossible_prefix_length_is_clipped, peers_on_a_network_get_equal_subnets, texts_are_the_usual_ones,
       networks_are_read, networks_have_their_addresses, a_network_has_infiniband_ports_by_ipoib});
}
