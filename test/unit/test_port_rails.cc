// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "common/ports/port_rails.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

std::string refusal(const char* text) {
  const auto rails = PortRails::parse(text);
  return rails ? "accepted" : rails.error().text;
}

START_TEST(ports_are_on_the_rails_that_the_list_says) {
  ck_assert_uint_eq(PortRails().rail_of("mlx5_0", 1), 0);
  const auto rails = PortRails::parse("mlx5_0=1,mlx5_1:2=255,mlx4_0:1=1,mlx4_0:2=3");
  ck_assert(rails.has_value());
  ck_assert_uint_eq(rails->rail_of("mlx5_0", 1), 1);
  ck_assert_uint_eq(rails->rail_of("mlx5_0", 2), 1);
  ck_assert_uint_eq(rails->rail_of("mlx5_1", 1), 0);
  ck_assert_uint_eq(rails->rail_of("mlx5_1", 2), 255);
  ck_assert_uint_eq(rails->rail_of("mlx4_0", 1), 1);
  ck_assert_uint_eq(rails->rail_of("mlx4_0", 2), 3);
  ck_assert_uint_eq(rails->rail_of("mlx5", 1), 0);
}
END_TEST

START_TEST(a_wrong_item_is_shown_with_the_rule) {
  using test::check_text;
  const std::string no_number = " has no rail after the equals sign: rails are 1 to 255";
  check_text(refusal("mlx5_0"), "\"mlx5_0\" has no rail: write DEVICE=RAIL or DEVICE:PORT=RAIL, separated by commas");
  check_text(refusal(""), "\"\" has no rail: write DEVICE=RAIL or DEVICE:PORT=RAIL, separated by commas");
  check_text(refusal("a=1,"), "\"\" has no rail: write DEVICE=RAIL or DEVICE:PORT=RAIL, separated by commas");
  for (const char* item : {"a=", "a=0", "a=256", "a=-1", "a=x", "a=1=2", "a=b:1"}) {
    check_text(refusal(item), "\"" + std::string(item) + "\"" + no_number);
  }
  check_text(refusal("=1"), "\"\" names no device: write DEVICE or DEVICE:PORT, separated by commas");
  check_text(refusal("a:0=1"), "\"a:0\" has no port number after the colon: ports are 1 to 255");
}
END_TEST

START_TEST(a_port_is_on_one_rail) {
  const std::string twice = " puts a port on a rail that has one already: name each once";
  test::check_text(refusal("a=1,b=1,a=2"), "\"a=2\"" + twice);
  test::check_text(refusal("a=1,a:2=2"), "\"a:2=2\"" + twice);
  test::check_text(refusal("a:2=1,a=2"), "\"a=2\"" + twice);
  test::check_text(refusal("a:2=1,a:2=1"), "\"a:2=1\"" + twice);
  test::check_text(refusal("a:2=1,a:1=1"), "accepted");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("port_rails", {ports_are_on_the_rails_that_the_list_says, a_wrong_item_is_shown_with_the_rule,
                                        a_port_is_on_one_rail});
}
