// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <vector>

#include "common/ports/port_pairing.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using Pairs = std::vector<std::optional<std::uint16_t>>;

PortAddress port(Transport link, std::uint8_t subnet) {
  PortAddress made;
  made.link = link;
  made.subnet.prefix[7] = subnet;
  made.subnet.bits = 64;
  return made;
}

PortAddress ib(std::uint8_t subnet) {
  return port(Transport::kInfiniBand, subnet);
}

START_TEST(reaches_the_same_link_and_subnet) {
  ck_assert(reachable(ib(1), ib(1), false));
  ck_assert(!reachable(ib(1), ib(2), false));
  ck_assert(reachable(ib(1), ib(2), true));
  ck_assert(!reachable(ib(1), port(Transport::kRoce, 1), false));
  ck_assert(!reachable(port(Transport::kIwarp, 1), port(Transport::kRoce, 1), true));
}
END_TEST

START_TEST(subnets_of_other_lengths_differ) {
  PortAddress longer = ib(1);
  longer.subnet.bits = 65;
  ck_assert(!reachable(ib(1), longer, false));
}
END_TEST

START_TEST(versions_of_roce_do_not_mix) {
  PortAddress first = port(Transport::kRoce, 1);
  PortAddress second = first;
  first.roce = 1;
  second.roce = 2;
  ck_assert(!reachable(first, second, true));
  ck_assert(reachable(second, second, false));
}
END_TEST

START_TEST(other_fields_do_not_matter) {
  PortAddress other = ib(1);
  other.lid = 7;
  other.mtu = 5;
  other.gid.raw[15] = 9;
  ck_assert(reachable(ib(1), other, false));
}
END_TEST

START_TEST(the_nth_meets_the_nth_of_the_subnet) {
  const std::vector ours = {ib(1), ib(2), ib(1), ib(3)};
  const std::vector theirs = {ib(2), ib(1), ib(2), ib(1), ib(1)};
  ck_assert(pair_ports(ours, theirs, false) == (Pairs{1, 0, 3, std::nullopt}));
  ck_assert(pair_ports(theirs, ours, false) == (Pairs{1, 0, std::nullopt, 2, std::nullopt}));
}
END_TEST

START_TEST(any_subnet_pairs_up_what_is_left) {
  const std::vector ours = {ib(1), ib(2), ib(3)};
  const std::vector theirs = {ib(4), ib(2), ib(5), port(Transport::kRoce, 1)};
  ck_assert(pair_ports(ours, theirs, true) == (Pairs{0, 1, 2}));
  ck_assert(pair_ports(theirs, ours, true) == (Pairs{0, 1, 2, std::nullopt}));
}
END_TEST

PortAddress on(std::uint8_t rail, PortAddress address) {
  address.rail = rail;
  return address;
}

START_TEST(rails_keep_ports_apart_and_together) {
  const std::vector ours = {on(1, ib(1)), on(2, ib(1)), ib(1)};
  const std::vector theirs = {on(2, ib(1)), ib(1), on(1, ib(1))};
  ck_assert(pair_ports(ours, theirs, false) == (Pairs{2, 0, 1}));
  ck_assert(pair_ports(theirs, ours, false) == (Pairs{1, 2, 0}));
  const std::vector fewer = {on(2, ib(1))};  // the first one is down: the second still meets the second
  ck_assert(pair_ports(ours, fewer, true) == (Pairs{std::nullopt, 0, std::nullopt}));
  const std::vector elsewhere = {on(1, ib(2))};  // a rail does not make a network
  ck_assert(pair_ports(ours, elsewhere, false) == (Pairs{std::nullopt, std::nullopt, std::nullopt}));
  ck_assert(pair_ports(ours, elsewhere, true) == (Pairs{0, std::nullopt, std::nullopt}));
}
END_TEST

START_TEST(the_reason_is_told) {
  PortAddress v1 = port(Transport::kRoce, 1);
  v1.roce = 1;
  PortAddress v2 = v1;
  v2.roce = 2;
  const auto why = [](const PortAddress& ours, const PortAddress& theirs) {
    return why_unpaired("a:1", ours, std::vector{theirs});
  };
  test::check_text(why(ib(1), ib(2)), "no port of the peer is on the subnet of a:1 (0:0:0:1::/64)");
  test::check_text(why(v1, v2),
                   "a:1 uses RoCE v1, and the peer's port on its subnet another version: btl_fabric_gid_index chooses");
  test::check_text(why(on(2, ib(1)), on(1, ib(1))),
                   "a:1 is on rail 2, and the peer has no port left on that rail of its subnet: btl_fabric_rails says "
                   "which belong together");
}
END_TEST

START_TEST(nothing_pairs_with_nothing) {
  const std::vector one = {ib(1)};
  ck_assert(pair_ports({}, one, true).empty());
  ck_assert(pair_ports(one, {}, true) == Pairs{std::nullopt});
}
END_TEST

START_TEST(contexts_pair_up_with_those_of_the_same_number) {
  const std::vector ours = {ib(1), ib(1), ib(2), ib(2)};                  // two of each port
  const std::vector theirs = {ib(2), ib(2), ib(2), ib(1), ib(1), ib(1)};  // three
  ck_assert(pair_contexts(ours, 2, theirs, 3, false) == (Pairs{3, 4, 0, 1}));
  ck_assert(pair_contexts(theirs, 3, ours, 2, false) == (Pairs{2, 3, std::nullopt, 0, 1, std::nullopt}));
  ck_assert(pair_contexts(ours, 1, ours, 1, false) == pair_ports(ours, ours, false));
}
END_TEST

/// Checks that `back` is the inverse of `there`, that pairs are reachable, and that nobody stays alone without need.
void check_pairs(const std::vector<PortAddress>& ours, const std::vector<PortAddress>& theirs, bool any_subnet) {
  const Pairs there = pair_ports(ours, theirs, any_subnet);
  const Pairs back = pair_ports(theirs, ours, any_subnet);
  ck_assert_uint_eq(there.size(), ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (std::size_t j = 0; j < theirs.size(); ++j) {
      ck_assert((there[i] == j) == (back[j] == i));
      ck_assert(there[i] != j || reachable(ours[i], theirs[j], any_subnet));
      ck_assert(there[i] || back[j] || !reachable(ours[i], theirs[j], any_subnet));
    }
  }
}

START_TEST(both_sides_compute_the_same_pairs) {
  std::mt19937 random(20240601);
  const auto ports = [&random] {
    std::vector<PortAddress> made(random() % 7);
    for (PortAddress& p : made) {
      p = port(static_cast<Transport>(1 + random() % 3), static_cast<std::uint8_t>(random() % 3));
      p.rail = static_cast<std::uint8_t>(random() % 2);
    }
    return made;
  };
  for (int i = 0; i < 5000; ++i) {
    const auto ours = ports();
    const auto theirs = ports();
    check_pairs(ours, theirs, i % 2 == 0);
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "port_pairing",
      {reaches_the_same_link_and_subnet, subnets_of_other_lengths_differ, versions_of_roce_do_not_mix,
       other_fields_do_not_matter, the_nth_meets_the_nth_of_the_subnet, any_subnet_pairs_up_what_is_left,
       rails_keep_ports_apart_and_together, the_reason_is_told, nothing_pairs_with_nothing,
       contexts_pair_up_with_those_of_the_same_number, both_sides_compute_the_same_pairs});
}
