// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/registration_cost.h"
#include "test/unit/check_main.h"
#include "test/unit/fake_verbs.h"

namespace fabric {
namespace {

constexpr std::uint64_t kKib64 = 64 << 10;
constexpr std::uint64_t kKib256 = 256 << 10;

bool is_near(double a, double b) {
  return a - b < 0.001 && b - a < 0.001;
}

START_TEST(two_times_make_a_line) {
  const RegistrationCost cost = registration_cost_of(kKib64, 30, kKib256, 45, 200);
  ck_assert(cost.is_measured);
  ck_assert(is_near(cost.per_mib, 80));
  ck_assert(is_near(cost.each, 25));
  ck_assert(is_near(cost.registering(kKib64), 30));
  ck_assert(is_near(cost.registering(kKib256), 45));
  ck_assert(is_near(cost.copying(1 << 20), 200));
}
END_TEST

/// A device that does not look at the pages, and times that noise has turned round.
START_TEST(no_part_is_negative) {
  const RegistrationCost flat = registration_cost_of(kKib64, 3, kKib256, 2.9, 200);
  ck_assert(is_near(flat.per_mib, 0));
  ck_assert(is_near(flat.each, 3));
  const RegistrationCost steep = registration_cost_of(kKib64, 1, kKib256, 100, 200);
  ck_assert(is_near(steep.each, 0));
  ck_assert(steep.per_mib > 500);
}
END_TEST

/// What is copied within a cache says little of messages.
START_TEST(no_copy_is_faster_than_memory) {
  ck_assert(
      is_near(registration_cost_of(kKib64, 30, kKib256, 45, 6).copying(1 << 20), RegistrationCost{}.copying(1 << 20)));
}
END_TEST

START_TEST(a_device_is_measured_and_nothing_stays) {
  test::FakeDevice device;
  const RegistrationCost cost = measure_registration(device.pd());
  ck_assert(cost.is_measured);
  ck_assert(cost.registering(kKib64) > 0);
  ck_assert(cost.copy_per_mib >= RegistrationCost{}.copy_per_mib);
  ck_assert_int_eq(static_cast<int>(device.regions), 0);
}
END_TEST

START_TEST(a_device_that_registers_nothing_has_assumed_costs) {
  test::FakeDevice device;
  device.registers = false;
  const RegistrationCost cost = measure_registration(device.pd());
  ck_assert(!cost.is_measured);
  ck_assert(is_near(cost.registering(0), RegistrationCost{}.each));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("registration_cost",
                         {two_times_make_a_line, no_part_is_negative, no_copy_is_faster_than_memory,
                          a_device_is_measured_and_nothing_stays, a_device_that_registers_nothing_has_assumed_costs});
}
