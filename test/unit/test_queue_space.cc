// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "common/accounting/queue_space.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

constexpr DeviceCosts kBytes{{32, 16}, 32};

START_TEST(bytes_are_aligned) {
  constexpr QueueSpace space(kBytes.operation, {4096, 4, 32, 100});
  static_assert(space.needed(0) == 32);
  static_assert(space.needed(1) == 64);
  static_assert(space.needed(2) == 64);
  static_assert(space.needed(3) == 96);
  static_assert(space.needed_inline(0) == 32);
  static_assert(space.needed_inline(1) == 64);
  static_assert(space.needed_inline(33) == 96);
  static_assert(space.largest() == 160);  // 100 bytes inline are more than four pieces
  static_assert(space.operations() == 25 && space.entries() == 128);
  ck_assert(space.largest() >= space.needed(4));
}
END_TEST

START_TEST(entries_of_one_size_are_a_special_case) {
  constexpr QueueSpace space = QueueSpace::for_operations(100, {{}, 64}, 8, 512);
  static_assert(space.size() == 6400 && space.operations() == 100 && space.entries() == 100);
  static_assert(space.needed(0) == 64 && space.needed(8) == 64 && space.needed_inline(512) == 64);
  ck_assert(space.costs().fixed_entries());
}
END_TEST

START_TEST(receives_have_costs_of_their_own) {
  constexpr DeviceCosts kCosts{{32, 16}, 32, {{16, 16}, 16}};
  constexpr QueueSpace one = QueueSpace::for_receives(100, kCosts);
  static_assert(one.needed(1) == 32 && one.size() == 3200);
  // All are of one piece, so a queue has no more entries than receives.
  static_assert(one.operations() == 100 && one.entries() == 100);
  constexpr QueueSpace four = QueueSpace::for_receives(100, kCosts, 4);
  static_assert(four.needed(4) == 80 && four.size() == 8000 && four.entries() == 100);
  constexpr QueueSpace fixed = QueueSpace::for_receives(100, {{32, 16}, 32, {{}, 16}});
  static_assert(fixed.size() == 1600 && fixed.entries() == 100);
  ck_assert_uint_eq(QueueSpace::for_receives(0, kCosts).entries(), 0);
}
END_TEST

START_TEST(unknown_devices_have_entries_of_one_size) {
  ck_assert(device_costs("nosuch0").operation.fixed_entries());
  ck_assert(device_costs("mlx5_3") == (DeviceCosts{{}, 64, {{}, 16}}));
  ck_assert(device_costs("") == DeviceCosts{});
}
END_TEST

START_TEST(costs_are_read) {
  ck_assert(*parse_costs("32,16,32") == kBytes);
  ck_assert(*parse_costs("0,0,1") == DeviceCosts{});
  ck_assert(*parse_costs("32,16,32,0,0,16") == (DeviceCosts{{32, 16}, 32, {{}, 16}}));
  for (const char* text :
       {"", "1", "1,2", "1,2,", "1,2,3,", "1,2,3,4", "1,2,x", "-1,2,3", "1,2,0", "0,2,1", "70000,0,1", "1,2,3,4,5",
        "1,2,3,4,5,", "1,2,3,4,5,0", "1,2,3,0,5,1", "1,2,3,4,5,6,", "1,2,3,4,5,6,7", "1,2,3;4,5,6"}) {
    ck_assert_msg(!parse_costs(text), "'%s' should be refused", text);
  }
}
END_TEST

START_TEST(any_mix_fits_the_entries) {
  std::mt19937 random(1);
  const auto up_to = [&random](std::uint32_t most) { return static_cast<std::uint32_t>(random() % (most + 1)); };
  for (unsigned round = 0; round < 2000; ++round) {
    const std::uint32_t alignment = 1U << up_to(6);
    const DeviceCosts costs =
        up_to(3) == 0 ? DeviceCosts{{}, alignment} : DeviceCosts{{8 + 8 * up_to(15), up_to(63)}, alignment};
    const std::uint32_t count = 1 + up_to(99);
    const auto space = QueueSpace::for_operations(count, costs, 1 + up_to(7), up_to(299));
    ck_assert_uint_eq(space.operations(), count);
    // Fill it with whatever comes, the way a device that counts entries sees it.
    std::uint64_t used = 0;
    std::uint64_t entries = 0;
    while (true) {
      const std::uint64_t next = up_to(1) == 0 ? space.needed(up_to(space.attributes().iov_limit))
                                               : space.needed_inline(up_to(space.attributes().inject_size));
      ck_assert(next >= space.smallest() && next <= space.largest());
      if (used + next > space.size()) {
        break;
      }
      used += next;
      ++entries;
    }
    ck_assert(entries >= count && entries <= space.entries());
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("queue_space",
                         {bytes_are_aligned, entries_of_one_size_are_a_special_case, receives_have_costs_of_their_own,
                          unknown_devices_have_entries_of_one_size, costs_are_read, any_mix_fits_the_entries});
}
