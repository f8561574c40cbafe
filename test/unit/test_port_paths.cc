// SPDX-License-Identifier: BSD-3-Clause
//
// Several paths from one port.
#include <set>

#include "common/ports/port_pairing.h"
#include "common/ports/port_paths.h"
#include "common/ports/process_info.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

UsablePort port(std::uint8_t number, std::uint16_t lid, std::uint8_t lmc) {
  UsablePort made;
  made.port_num = number;
  made.address.lid = lid;
  made.lmc = lmc;
  made.bandwidth = 100000;
  made.weight = 50000;
  return made;
}

START_TEST(one_path_is_the_port) {
  const auto all = with_paths({port(1, 40, 2), port(2, 44, 2)}, 1);
  ck_assert_uint_eq(all.size(), 2);
  for (const UsablePort& one : all) {
    ck_assert_uint_eq(one.paths, 1);
    ck_assert_uint_eq(one.address.path, 0);
    ck_assert_uint_eq(one.path_bits, 0);
    ck_assert_uint_eq(one.bandwidth, 100000);
  }
  ck_assert_uint_eq(all[1].address.lid, 44);
}
END_TEST

START_TEST(paths_of_a_port_follow_each_other) {
  const auto all = with_paths({port(1, 40, 0), port(2, 44, 0)}, 3);
  ck_assert_uint_eq(all.size(), 6);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ck_assert_uint_eq(all[i].port_num, 1 + i / 3);
    ck_assert_uint_eq(all[i].address.path, i % 3);
    ck_assert_uint_eq(all[i].paths, 3);
    ck_assert_uint_eq(all[i].bandwidth, 33333);
    ck_assert_uint_eq(all[i].weight, 16666);
    ck_assert_uint_eq(all[i].address.lid, i < 3 ? 40 : 44);  // there is no other
  }
}
END_TEST

START_TEST(each_path_has_a_lid_of_its_own) {  // while there are any
  const auto all = with_paths({port(1, 40, 2)}, 6);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ck_assert_uint_eq(all[i].path_bits, i % 4);
    ck_assert_uint_eq(all[i].address.lid, 40 + i % 4);
  }
}
END_TEST

START_TEST(no_more_than_a_process_can_have) {
  const std::vector<UsablePort> ten(10, port(1, 1, 0));
  ck_assert_uint_eq(with_paths(ten, 8).size(), 60);
  ck_assert_uint_eq(with_paths(std::vector<UsablePort>(kMaxPorts, port(1, 1, 0)), 8).size(), kMaxPorts);
  ck_assert_uint_eq(with_paths({}, 8).size(), 0);
}
END_TEST

START_TEST(a_path_has_some_bandwidth) {
  UsablePort slow = port(1, 1, 0);
  slow.bandwidth = 3;
  ck_assert_uint_eq(with_paths({slow}, 8).front().bandwidth, 1);
}
END_TEST

std::vector<PortAddress> addresses(const std::vector<UsablePort>& ports) {
  std::vector<PortAddress> all;
  for (const UsablePort& one : ports) {
    all.push_back(one.address);
  }
  return all;
}

START_TEST(a_path_meets_the_same_path_of_the_port) {
  const std::vector<UsablePort> ports{port(1, 1, 0), port(2, 2, 0)};
  const auto ours = addresses(with_paths(ports, 2));
  const auto theirs = addresses(with_paths(ports, 3));
  const auto pairs = pair_ports(ours, theirs, false);
  ck_assert(pairs == (std::vector<std::optional<std::uint16_t>>{0, 1, 3, 4}));
  const auto back = pair_ports(theirs, ours, true);
  ck_assert(back == (std::vector<std::optional<std::uint16_t>>{0, 1, std::nullopt, 2, 3, std::nullopt}));
}
END_TEST

START_TEST(flow_labels_differ) {
  ck_assert_uint_eq(flow_label(77, 1, 0), 0);
  std::set<std::uint32_t> all;
  for (std::uint32_t process = 100; process < 200; ++process) {
    for (unsigned path = 0; path < 4; ++path) {
      const std::uint32_t label = flow_label(process, 4, path);
      ck_assert(label > 0 && label <= 0xfffff);
      ck_assert_uint_eq(label, flow_label(process, 4, 0) + path);
      all.insert(label);
    }
  }
  ck_assert_uint_eq(all.size(), 400);
  ck_assert_uint_le(flow_label(UINT32_MAX, 8, 7), 0xfffff);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "port_paths", {one_path_is_the_port, paths_of_a_port_follow_each_other, each_path_has_a_lid_of_its_own,
                     no_more_than_a_process_can_have, a_path_has_some_bandwidth, a_path_meets_the_same_path_of_the_port,
                     flow_labels_differ});
}
