// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <string>

#include "common/ports/port_scan.h"
#include "common/ports/port_traffic_class.h"
#include "test/unit/check_main.h"
#include "test/unit/test_folder.h"

namespace fabric {
namespace {

/// What is found where the file of port 2 of a device has this text.
unsigned found(const char* text) {
  const test::TestFolder folder;
  const std::string root = folder.file("configfs");
  const std::string port = root + "/rdma_cm/mlx5_0/ports/2";
  std::filesystem::create_directories(port);
  std::ofstream(port + "/default_roce_tos") << text;
  const unsigned value = own_traffic_class(root, "mlx5_0", 2);
  ck_assert_uint_eq(own_traffic_class(root, "mlx5_0", 1), 0);
  ck_assert_uint_eq(own_traffic_class(root, "mlx5_1", 2), 0);
  std::filesystem::remove_all(root);
  return value;
}

START_TEST(the_file_of_the_port_counts) {
  ck_assert_uint_eq(found("104\n"), 104);
  ck_assert_uint_eq(found("0\n"), 0);
  ck_assert_uint_eq(found("255"), 255);
}
END_TEST

START_TEST(what_makes_no_sense_is_none) {
  for (const char* text : {"", "\n", "x", "256\n", "-1\n", "99999999999\n"}) {
    ck_assert_uint_eq(found(text), 0);
  }
  ck_assert_uint_eq(own_traffic_class("/nowhere", "mlx5_0", 2), 0);
}
END_TEST

START_TEST(the_user_comes_first) {
  UsablePort port;
  ck_assert_uint_eq(port.traffic_class(-1), 0);
  port.own_traffic_class = 104;
  ck_assert_uint_eq(port.traffic_class(-1), 104);
  ck_assert_uint_eq(port.traffic_class(0), 0);
  ck_assert_uint_eq(port.traffic_class(255), 255);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("port_traffic_class",
                         {the_file_of_the_port_counts, what_makes_no_sense_is_none, the_user_comes_first});
}
