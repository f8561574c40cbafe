// SPDX-License-Identifier: BSD-3-Clause
#include <deque>
#include <random>
#include <string>

#include "common/accounting/queue_credits.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

START_TEST(counts_what_is_left) {
  TxCredits credits(QueueSpace::for_operations(4, {}, 2, 100));
  ck_assert_uint_eq(credits.size_left(), 4);
  ck_assert(credits.take_unsignaled(1));
  ck_assert(credits.take_unsignaled(1));
  const std::uint64_t carried = credits.take_signaled(1);
  ck_assert_uint_eq(carried, 3);
  ck_assert_uint_eq(credits.size_left(), 1);
  ck_assert_uint_eq(credits.take_signaled(1), 1);
  ck_assert(!credits.has_room());
  ck_assert_uint_eq(credits.take_signaled(1), 0);
  ck_assert(!credits.take_unsignaled(1));
  credits.completed(carried);
  ck_assert_uint_eq(credits.size_left(), 3);
  credits.completed(1);
  ck_assert(credits.is_full());
}
END_TEST

START_TEST(receives_are_counted_in_batches) {
  RxCredits credits(QueueSpace::for_operations(5, {{32, 16}, 64}, 1, 0));
  ck_assert_uint_eq(credits.take(3), 3);
  ck_assert_uint_eq(credits.size_left(), 2);
  ck_assert_uint_eq(credits.take(3), 2);
  credits.completed(5);
  ck_assert(credits.is_full());
}
END_TEST

/// A random mix of operations on a queue. Returns what went wrong, or nothing.
template <class Credits>
std::string exercise(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&random](std::uint32_t most) { return static_cast<std::uint32_t>(random() % (most + 1)); };
  const DeviceCosts costs = up_to(2) == 0 ? DeviceCosts{} : DeviceCosts{{8 + up_to(60), up_to(32)}, 1U << up_to(6)};
  const std::uint32_t count = 1 + up_to(40);
  const QueueSpace space = QueueSpace::for_operations(count, costs, 1 + up_to(7), up_to(200));
  Credits credits(space);
  std::deque<std::uint64_t> under_way;  // what each completion carries
  std::deque<unsigned> operations;      // and how many operations it stands for
  unsigned unsignaled = 0;
  unsigned plain = 0;  // plain counting: posts not known to be done
  for (unsigned step = 0; step < 400; ++step) {
    const std::uint64_t left = credits.size_left();
    if (left + plain < count) {
      return "says less than plain counting";
    }
    if (up_to(20) == 0) {  // the promise: so many operations of the largest size
      Credits copy = credits;
      for (std::uint64_t i = 0; i < left; ++i) {
        if (up_to(1) == 0 ? copy.take_signaled(space.largest()) == 0 : !copy.take_unsignaled(space.largest())) {
          return "promised more than fits";
        }
      }
    }
    if ((left > 0) != credits.has_room()) {
      return "two answers to one question";
    }
    const std::uint64_t bytes = up_to(1) == 0 ? space.needed(up_to(space.attributes().iov_limit))
                                              : space.needed_inline(up_to(space.attributes().inject_size));
    if (up_to(2) != 0) {
      const bool signaled = up_to(3) == 0 || unsignaled > count / 2;
      const std::uint64_t carried = signaled ? credits.take_signaled(bytes) : 0;
      const bool taken = signaled ? carried != 0 : credits.take_unsignaled(bytes);
      if (!taken && left > 0) {
        return "refused although there was room";
      }
      plain += taken ? 1 : 0;
      unsignaled += taken && !signaled ? 1 : 0;
      if (taken && signaled) {
        under_way.push_back(carried);
        operations.push_back(unsignaled + 1);
        unsignaled = 0;
      }
    } else if (!under_way.empty()) {
      credits.completed(under_way.front());
      plain -= operations.front();
      under_way.pop_front();
      operations.pop_front();
    }
  }
  if (const std::uint64_t carried = credits.take_signaled(space.smallest()); carried != 0) {
    under_way.push_back(carried);
  } else if (under_way.empty()) {
    return "";  // full of operations without a completion: the user's fault, who asks for one in time
  }
  for (const std::uint64_t carried : under_way) {
    credits.completed(carried);
  }
  return credits.is_full() || credits.unsignaled() > 0 ? "" : "not full after draining";
}

template <class Credits>
std::string exercise_all() {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    if (const std::string problem = exercise<Credits>(seed); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

START_TEST(any_mix_keeps_the_promises) {
  test::check_text(exercise_all<TxCredits>(), "");
}
END_TEST

/// Counts every operation as the largest.
struct Pessimist : TxCredits {
  using TxCredits::TxCredits;
  [[nodiscard]] std::uint64_t size_left() const noexcept {
    const std::uint64_t left = TxCredits::size_left();
    return left > 1 ? left - 1 : left;
  }
};
/// Promises by the smallest operation.
struct Optimist : TxCredits {
  using TxCredits::TxCredits;
  [[nodiscard]] std::uint64_t size_left() const noexcept { return TxCredits::size_left() + 1; }
};

START_TEST(the_properties_find_wrong_counts) {
  test::check_text(exercise_all<Pessimist>(), "says less than plain counting");
  ck_assert(!exercise_all<Optimist>().empty());
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("queue_credits", {counts_what_is_left, receives_are_counted_in_batches,
                                           any_mix_keeps_the_promises, the_properties_find_wrong_counts});
}
