// SPDX-License-Identifier: BSD-3-Clause
//
// How a large read or write is divided among several ports.
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "common/rdma/stripes.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

std::vector<std::uint64_t> split(std::uint64_t size, const std::vector<std::uint32_t>& weights) {
  std::vector<std::uint64_t> lengths(weights.size());
  split_by_weight(size, weights, lengths);
  return lengths;
}

void check_split(std::uint64_t size, const std::vector<std::uint32_t>& weights,
                 const std::vector<std::uint64_t>& expected) {
  const auto lengths = split(size, weights);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ck_assert_uint_eq(lengths[i], expected[i]);
  }
}

START_TEST(equal_ports_get_halves) {
  check_split(1 << 20, {100, 100}, {1 << 19, 1 << 19});
  check_split(3 << 20, {7, 7, 7}, {1 << 20, 1 << 20, 1 << 20});
}
END_TEST

START_TEST(one_port_gets_everything) {
  check_split(0, {1}, {0});
  check_split(12345, {40000}, {12345});
}
END_TEST

START_TEST(a_faster_port_gets_more) {
  check_split(5 << 20, {100000, 25000}, {4 << 20, 1 << 20});
  check_split(1000 * kStripeUnit, {1, 2, 7}, {100 * kStripeUnit, 200 * kStripeUnit, 700 * kStripeUnit});
}
END_TEST

START_TEST(what_is_less_than_a_page_goes_with_the_last) {
  check_split(3 * kStripeUnit + 5, {1, 1}, {kStripeUnit, 2 * kStripeUnit + 5});
  check_split(kStripeUnit - 1, {1, 1, 1}, {0, 0, kStripeUnit - 1});
  check_split(1, {1, 1}, {0, 1});
  check_split(0, {3, 1}, {0, 0});
}
END_TEST

START_TEST(a_port_of_no_speed_gets_nothing) {
  check_split(1 << 20, {5, 0}, {1 << 20, 0});
  check_split(1 << 20, {0, 5}, {0, 1 << 20});
}
END_TEST

START_TEST(unknown_speeds_are_equal) {
  check_split(1 << 20, {0, 0}, {1 << 19, 1 << 19});
}
END_TEST

START_TEST(nothing_overflows) {
  constexpr std::uint64_t kHuge = UINT64_MAX;
  const auto lengths = split(kHuge, {UINT32_MAX, UINT32_MAX, UINT32_MAX});
  ck_assert_uint_eq(lengths[0] + lengths[1] + lengths[2], kHuge);
  for (const std::uint64_t length : lengths) {
    ck_assert_uint_ge(length, kHuge / 3 - 2 * kStripeUnit);
    ck_assert_uint_le(length, kHuge / 3 + 2 * kStripeUnit);
  }
}
END_TEST

START_TEST(any_split_is_whole_aligned_and_fair) {
  std::mt19937_64 random(20240601);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint32_t> weights(1 + random() % 16);
    for (std::uint32_t& weight : weights) {
      weight = 1 + static_cast<std::uint32_t>(random() % (std::uint64_t{1} << random() % 20));
    }
    const std::uint64_t size = random() >> random() % 64;
    const auto lengths = split(size, weights);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sum += lengths[i];
      ck_assert(i + 1 == weights.size() || lengths[i] % kStripeUnit == 0);
      const double share = static_cast<double>(size) * weights[i] / total;
      const double tolerance = 2.0 * kStripeUnit + static_cast<double>(size) * 1e-12;
      ck_assert(static_cast<double>(lengths[i]) >= share - tolerance);
      ck_assert(static_cast<double>(lengths[i]) <= share + tolerance);
    }
    ck_assert_uint_eq(sum, size);
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("stripes", {equal_ports_get_halves, one_port_gets_everything, a_faster_port_gets_more,
                                     what_is_less_than_a_page_goes_with_the_last, a_port_of_no_speed_gets_nothing,
                                     unknown_speeds_are_equal, nothing_overflows, any_split_is_whole_aligned_and_fair});
}
