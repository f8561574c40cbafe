// SPDX-License-Identifier: BSD-3-Clause
//
// InfiniBand subnets with one GID prefix: what is taken for a proof that ports are on two of them, and what is not.
#include <memory>
#include <string>
#include <vector>

#include "common/ports/shared_prefix.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

std::shared_ptr<OpenDevice> device(const char* name, std::uint64_t adapter) {
  auto made = std::make_shared<OpenDevice>();
  made->name = name;
  made->attributes.sys_image_guid = adapter;
  return made;
}

UsablePort port(std::shared_ptr<OpenDevice> device, std::uint8_t number, std::uint16_t lid, std::uint16_t sm_lid) {
  UsablePort made;
  made.device = std::move(device);
  made.port_num = number;
  made.address.link = Transport::kInfiniBand;
  made.address.lid = lid;
  made.address.subnet.prefix = {0xfe, 0x80};
  made.address.subnet.bits = 64;
  made.sm_lid = sm_lid;
  return made;
}

std::string proof_for(const UsablePort& a, const UsablePort& b) {
  const auto found = find_shared_prefix(std::vector{a, b});
  const auto other_way = find_shared_prefix(std::vector{b, a});
  ck_assert_int_eq(found.has_value(), other_way.has_value());
  return found ? found->proof : "";
}

START_TEST(ports_of_one_subnet_are_no_doubt) {
  const auto first = device("mlx5_0", 1);
  const auto second = device("mlx5_1", 2);
  test::check_text(proof_for(port(first, 1, 5, 1), port(second, 1, 6, 1)), "");
  test::check_text(proof_for(port(first, 1, 5, 0), port(second, 1, 6, 9)), "");  // a manager is not known
  test::check_text(proof_for(port(first, 1, 0, 1), port(second, 1, 0, 1)), "");  // no LID yet
  ck_assert(!find_shared_prefix(std::vector{port(first, 1, 5, 1)}));
  ck_assert(!find_shared_prefix({}));
}
END_TEST

START_TEST(two_subnet_managers_are_two_subnets) {
  const auto found = find_shared_prefix(std::vector{
      port(device("mlx5_0", 1), 1, 5, 1), port(device("mlx5_1", 1), 1, 7, 1), port(device("mlx4_0", 2), 2, 6, 9)});
  ck_assert(found.has_value());
  test::check_text(found->first, "mlx5_0:1");
  test::check_text(found->second, "mlx4_0:2");
  test::check_text(to_string(found->prefix), "fe80::/64");
  test::check_text(found->proof, "their subnet managers have LIDs 1 and 9, and a subnet has one");
}
END_TEST

START_TEST(a_lid_that_is_given_twice_is_a_proof) {
  const std::string same = "their LIDs are 5 and 5, and a subnet has each LID once";
  test::check_text(proof_for(port(device("a", 1), 1, 5, 1), port(device("b", 2), 1, 5, 1)), same);
  const auto both = device("a", 1);
  test::check_text(proof_for(port(both, 1, 5, 1), port(both, 2, 5, 1)), same);
  UsablePort several = port(device("b", 2), 1, 4, 1);
  several.lmc = 1;
  ck_assert(!proof_for(port(both, 1, 5, 1), several).empty());
  test::check_text(proof_for(port(both, 1, 6, 1), several), "");
}
END_TEST

START_TEST(functions_of_one_adapter_may_have_one_lid) {
  test::check_text(proof_for(port(device("a", 1), 1, 5, 1), port(device("b", 1), 1, 5, 1)), "");
  UsablePort by_gid = port(device("b", 2), 1, 5, 1);
  by_gid.needs_grh = true;
  test::check_text(proof_for(port(device("a", 1), 1, 5, 1), by_gid), "");
}
END_TEST

START_TEST(subnets_of_other_prefixes_and_other_links_do_not_count) {
  UsablePort other = port(device("b", 2), 1, 5, 9);
  other.address.subnet.prefix[7] = 1;
  test::check_text(proof_for(port(device("a", 1), 1, 5, 1), other), "");
  UsablePort on_a_rail = port(device("b", 2), 1, 5, 9);  // the user knows what belongs together
  on_a_rail.address.rail = 1;
  test::check_text(proof_for(port(device("a", 1), 1, 5, 1), on_a_rail), "");
  UsablePort roce = port(device("a", 1), 1, 5, 1);
  UsablePort roce_too = port(device("b", 2), 1, 5, 9);
  roce.address.link = roce_too.address.link = Transport::kRoce;
  test::check_text(proof_for(roce, roce_too), "");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "shared_prefix",
      {ports_of_one_subnet_are_no_doubt, two_subnet_managers_are_two_subnets, a_lid_that_is_given_twice_is_a_proof,
       functions_of_one_adapter_may_have_one_lid, subnets_of_other_prefixes_and_other_links_do_not_count});
}
