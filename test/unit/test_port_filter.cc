// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_filter.h"
#include "common/ports/port_scan.h"
#include "test/unit/check_main.h"

namespace {

using fabric::PortFilter;

START_TEST(without_a_list_everything_passes) {
  const PortFilter filter;
  ck_assert(filter.passes("rxe0", 1));
  ck_assert(filter.may_pass("rxe0"));
}
END_TEST

START_TEST(an_include_list_lets_only_its_items_pass) {
  const auto filter = PortFilter::parse("rxe0,mlx5_0:2", true);
  ck_assert(filter.has_value());
  ck_assert(filter->passes("rxe0", 1));
  ck_assert(filter->passes("rxe0", 7));
  ck_assert(filter->passes("mlx5_0", 2));
  ck_assert(!filter->passes("mlx5_0", 1));
  ck_assert(!filter->passes("rxe", 1));
  ck_assert(filter->may_pass("mlx5_0"));
  ck_assert(!filter->may_pass("mlx5_1"));
}
END_TEST

START_TEST(an_exclude_list_stops_only_its_items) {
  const auto filter = PortFilter::parse("rxe0,mlx5_0:2", false);
  ck_assert(filter.has_value());
  ck_assert(!filter->passes("rxe0", 1));
  ck_assert(!filter->passes("mlx5_0", 2));
  ck_assert(filter->passes("mlx5_0", 1));
  ck_assert(!filter->may_pass("rxe0"));
  ck_assert(filter->may_pass("mlx5_0"));
}
END_TEST

START_TEST(a_wrong_item_is_shown_with_the_rule) {
  for (const char* text :
       {"", "rxe0,", ",rxe0", ":1", "rxe0:", "rxe0:0", "rxe0:256", "rxe0:1x", "rxe0:-1", "rxe 0", "/dev/rxe0"}) {
    const auto filter = PortFilter::parse(text, true);
    ck_assert_msg(!filter.has_value(), "\"%s\" was accepted", text);
    ck_assert_msg(filter.error().text.find('"') == 0, "no item in: %s", filter.error().text.c_str());
  }
}
END_TEST

using fabric::PortRefusal;

void check_unused(const char* list, const std::vector<std::string>& used, const std::vector<PortRefusal>& refusals,
                  const char* expected) {
  std::string text;
  for (const PortRefusal& one : fabric::unused_items(*PortFilter::parse(list, true), used, refusals)) {
    text += one.port + " (" + one.reason + ")";
  }
  ck_assert_str_eq(text.c_str(), expected);
}

START_TEST(items_that_bring_no_port_are_found) {
  const std::vector<PortRefusal> refusals = {{"rxe9", "there is none"},
                                             {"mlx5_0:2", "it is down"},
                                             {"mlx5_1:1", "it has no GID"},
                                             {"mlx5_1:2", "it is down"},
                                             {"mlx5_2", "it cannot be opened"}};
  const std::vector<std::string> used = {"rxe0:1", "mlx5_0:1"};
  check_unused("rxe0,mlx5_0", used, refusals, "");
  check_unused("rxe0,rxe9", used, refusals, "rxe9 (there is none)");
  check_unused("mlx5_0:2,mlx5_0:1", used, refusals, "mlx5_0:2 (it is down)");
  check_unused("mlx5_1", used, refusals, "mlx5_1 (mlx5_1:1: it has no GID; mlx5_1:2: it is down)");
  check_unused("mlx5_2:1", used, refusals, "mlx5_2:1 (mlx5_2: it cannot be opened)");
  check_unused("mlx5_0:3", used, refusals, "mlx5_0:3 (the device has no such port)");
  check_unused("rxe", used, {{"rxe", "there is none"}}, "rxe (there is none)");
  ck_assert(fabric::unused_items(*PortFilter::parse("rxe9", false), used, refusals).empty());
  ck_assert(fabric::unused_items(PortFilter(), used, refusals).empty());
}
END_TEST

std::vector<fabric::PortCandidate> candidates(int count) {
  std::vector<fabric::PortCandidate> made;
  for (int i = 0; i < count; ++i) {
    fabric::PortCandidate one;
    one.port.device = std::make_shared<fabric::OpenDevice>();
    one.port.device->name = "dev" + std::to_string(i);
    made.push_back(std::move(one));
  }
  return made;
}

START_TEST(no_more_ports_than_a_process_can_have) {
  fabric::PortScan scan;
  fabric::select_ports(candidates(70), -1, scan);
  ck_assert_uint_eq(scan.ports.size(), 64);
  ck_assert_uint_eq(scan.beyond_maximum, 6);
  ck_assert_uint_eq(scan.refusals.size(), 6);
  fabric::test::check_text(scan.refusals[0].port, "dev64:1");
  fabric::test::check_text(scan.refusals[0].reason, "64 ports are in use already, and a process can have no more");
  fabric::PortScan few;
  auto far = candidates(70);
  for (std::size_t i = 1; i < far.size(); ++i) {
    far[i].nearness = i > 66 ? fabric::kNearest : fabric::kFar;
  }
  fabric::select_ports(std::move(far), 3, few);
  ck_assert_uint_eq(few.ports.size(), 3);
  fabric::test::check_text(few.ports[1].name(), "dev67:1");
  ck_assert_uint_eq(few.beyond_maximum, 0);
  ck_assert_uint_eq(few.refusals.size(), 67);
  fabric::test::check_text(few.refusals.back().reason, "btl_fabric_max_ports is 3, and so many are in use already");
}
END_TEST

/// What select_ports() makes of two ports, the first near and the second far: the second is used.
bool uses_far_port(const fabric::PortAddress& near, const fabric::PortAddress& far) {
  auto two = candidates(2);
  two[0].port.address = near;
  two[1].port.address = far;
  two[1].nearness = fabric::kFar;
  fabric::PortScan scan;
  fabric::select_ports(std::move(two), -1, scan);
  ck_assert_uint_eq(scan.ports.size() + scan.refusals.size(), 2);
  fabric::test::check_text(scan.ports.front().name(), "dev0:1");
  return scan.ports.size() == 2;
}

/// Elsewhere another process may be near the other port, and have only that one.
START_TEST(a_far_port_alone_on_its_network_is_used) {
  using fabric::Transport;
  const fabric::Subnet a{{10, 0, 0}, 24};
  const fabric::Subnet b{{10, 0, 1}, 24};
  const auto port = [](Transport link, const fabric::Subnet& subnet) {
    fabric::PortAddress address;
    address.link = link;
    address.subnet = subnet;
    return address;
  };
  ck_assert(uses_far_port(port(Transport::kRoce, a), port(Transport::kRoce, b)));
  ck_assert(uses_far_port(port(Transport::kRoce, a), port(Transport::kIwarp, a)));
  ck_assert(!uses_far_port(port(Transport::kRoce, a), port(Transport::kRoce, a)));
}
END_TEST

/// Of a near port and another on its network: which are used, and with what weights.
std::string weights(std::uint32_t near, std::uint32_t other, unsigned nearness) {
  auto two = candidates(2);
  two[0].port.bandwidth = near;
  two[1].port.bandwidth = other;
  two[1].nearness = nearness;
  fabric::PortScan scan;
  fabric::select_ports(std::move(two), -1, scan);
  std::string text;
  for (const fabric::UsablePort& port : scan.ports) {
    text += (text.empty() ? "" : " ") + port.name() + "=" + std::to_string(port.weight);
  }
  return text;
}

START_TEST(ports_are_weighed_by_bandwidth_and_distance) {
  using fabric::test::check_text;
  check_text(weights(100000, 100000, 100), "dev0:1=100000 dev1:1=100000");
  check_text(weights(100000, 25000, 100), "dev0:1=100000 dev1:1=25000");  // slow, but as near
  check_text(weights(100000, 100000, 83), "dev0:1=100000 dev1:1=83000");  // another part of the same processor
  check_text(weights(100000, 100000, 50), "dev0:1=100000");
  check_text(weights(100000, 100000, 47), "dev0:1=100000");
  check_text(weights(25000, 400000, 47), "dev0:1=25000 dev1:1=188000");  // far, but much faster
  check_text(weights(25000, 26000, 47), "dev0:1=25000");
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "port_filter",
      {without_a_list_everything_passes, an_include_list_lets_only_its_items_pass, an_exclude_list_stops_only_its_items,
       a_wrong_item_is_shown_with_the_rule, items_that_bring_no_port_are_found, no_more_ports_than_a_process_can_have,
       a_far_port_alone_on_its_network_is_used, ports_are_weighed_by_bandwidth_and_distance});
}
