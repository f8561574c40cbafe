// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/accounting/region_budget.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

unsigned take_all(RegionBudget& budget, RegionUse use) {
  unsigned count = 0;
  while (count < 1000 && budget.try_take(use)) {
    ++count;
  }
  return count;
}

START_TEST(what_is_not_known_is_no_limit) {
  for (const std::int64_t none : {0, -1}) {
    RegionBudget budget(none);
    ck_assert_uint_eq(take_all(budget, RegionUse::kSinks), 1000);
    ck_assert_uint_eq(take_all(budget, RegionUse::kReceives), 1000);
    ck_assert_int_eq(budget.granted(), 0);
    ck_assert_int_eq(budget.in_use(), 2000);
  }
}
END_TEST

START_TEST(each_use_leaves_the_others_what_is_kept_for_them) {
  // Of 32, 12 are kept for buffers to receive into, 2 each for what peers read and write, one for the first temporary
  // one, and 4 for each of the others.
  constexpr std::array kUses = {RegionUse::kSources,  RegionUse::kSinks,   RegionUse::kOperations,    RegionUse::kSends,
                                RegionUse::kReceives, RegionUse::kReserve, RegionUse::kFirstTemporary};
  for (const RegionUse first : kUses) {
    RegionBudget budget(32);
    std::int64_t kept = 0;
    for (const RegionUse use : kUses) {
      kept += use == first ? 0 : budget.kept_for(use);
    }
    ck_assert_uint_eq(take_all(budget, first), 32 - kept);
    for (const RegionUse use : kUses) {
      ck_assert_uint_eq(take_all(budget, use), use == first ? 0 : budget.kept_for(use));
    }
    ck_assert_int_eq(budget.in_use(), 32);
  }
  RegionBudget many(100000);
  ck_assert_int_eq(many.kept_for(RegionUse::kReserve), 16);
  RegionBudget few(kRegionUses);
  for (const RegionUse use : kUses) {
    ck_assert_int_eq(few.kept_for(use) > 0, use != RegionUse::kSources);
  }
}
END_TEST

START_TEST(what_is_given_back_can_be_had_again) {
  RegionBudget budget(8);
  const unsigned first = take_all(budget, RegionUse::kSinks);
  ck_assert(!budget.try_take(RegionUse::kSinks));
  budget.give_back(RegionUse::kSinks);
  ck_assert(budget.try_take(RegionUse::kSinks));
  ck_assert(!budget.try_take(RegionUse::kSinks));
  ck_assert_int_eq(budget.in_use(), first);
}
END_TEST

/// A sink that was registered for operations leaves them theirs.
START_TEST(a_region_can_become_a_sink) {
  RegionBudget budget(32);
  std::vector<RegionUse> regions(take_all(budget, RegionUse::kOperations), RegionUse::kOperations);
  std::int64_t sinks = 0;
  for (RegionUse& one : regions) {
    sinks += budget.become_sink(one) ? 1 : 0;
  }
  const std::int64_t kept = budget.kept_for(RegionUse::kOperations);
  ck_assert_int_eq(sinks, static_cast<std::int64_t>(regions.size()) - kept + budget.kept_for(RegionUse::kSinks));
  ck_assert(regions.front() == RegionUse::kSinks && regions.back() == RegionUse::kOperations);
  ck_assert_int_eq(budget.in_use(), static_cast<std::int64_t>(regions.size()));
  ck_assert(budget.become_sink(regions.front()));  // it is one already
  for (const RegionUse one : regions) {
    budget.give_back(one);
  }
  ck_assert_int_eq(budget.in_use(), 0);
  RegionUse source = RegionUse::kSources;
  ck_assert(budget.try_take(source) && budget.become_sink(source));
  ck_assert(source == RegionUse::kSources);
}
END_TEST

START_TEST(the_error_says_what_there_is) {
  RegionBudget budget(1, "1 of the device");
  ck_assert(budget.try_take(RegionUse::kReserve));
  ck_assert(!budget.try_take(RegionUse::kReserve));
  ck_assert(!budget.try_take(RegionUse::kSinks));
  ck_assert(budget.explain().find("all 1 memory regions") == 0);
  ck_assert(budget.explain().find("1 of the device") != std::string::npos);
}
END_TEST

START_TEST(what_nobody_uses_makes_room) {
  unsigned unused = 3;
  unsigned asked = 0;
  RegionBudget* the_one = nullptr;
  RegionBudget budget(8, "", [&] {
    ++asked;
    if (unused == 0) {
      return false;
    }
    --unused;
    the_one->give_back(RegionUse::kSinks);
    return true;
  });
  the_one = &budget;
  const unsigned first = take_all(budget, RegionUse::kSinks);
  ck_assert_uint_eq(asked, 0);  // try_take() does not
  for (unsigned i = 0; i < 3; ++i) {
    ck_assert(budget.take(RegionUse::kSinks));
    ck_assert_int_eq(budget.in_use(), first);
  }
  ck_assert(!budget.take(RegionUse::kSinks));
  ck_assert_uint_eq(asked, 4);
}
END_TEST

/// Random takes and returns by several threads. Returns what went wrong, or nothing.
std::string exercise(std::int64_t granted, unsigned seed) {
  RegionBudget budget(granted);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(seed + thread);
      std::vector<RegionUse> taken;
      for (unsigned step = 0; step < 2000; ++step) {
        const auto use = static_cast<RegionUse>(random() % kRegionUses);
        if (random() % 2 == 0) {
          if (budget.try_take(use)) {
            taken.push_back(use);
          }
        } else if (!taken.empty()) {
          budget.give_back(taken.back());
          taken.pop_back();
        }
        is_over = is_over || budget.in_use() > granted;
      }
      for (const RegionUse use : taken) {
        budget.give_back(use);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return is_over ? "more than granted" : budget.in_use() != 0 ? "some are lost" : "";
}

START_TEST(never_more_than_granted) {
  for (unsigned granted = 1; granted < 20; ++granted) {
    test::check_text(exercise(granted, granted), "");
  }
}
END_TEST

START_TEST(the_process_counts_what_there_is) {
  const std::uint64_t now = regions_now;
  const std::uint64_t refused = regions_at_limit;
  RegionBudget budget(8);
  ck_assert(budget.try_take(RegionUse::kReserve) && budget.try_take(RegionUse::kSinks));
  ck_assert_uint_eq(regions_now, now + 2);
  ck_assert_uint_ge(regions_most, 2);
  (void)take_all(budget, RegionUse::kReceives);
  ck_assert_uint_eq(regions_at_limit, refused + 1);
  budget.give_back(RegionUse::kSinks);
  ck_assert_uint_eq(regions_now, now + static_cast<std::uint64_t>(budget.in_use()));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("region_budget",
                         {what_is_not_known_is_no_limit, each_use_leaves_the_others_what_is_kept_for_them,
                          what_is_given_back_can_be_had_again, a_region_can_become_a_sink, the_error_says_what_there_is,
                          what_nobody_uses_makes_room, never_more_than_granted, the_process_counts_what_there_is});
}
