// SPDX-License-Identifier: BSD-3-Clause
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

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

constexpr int kBuffers[8] = {};  // their addresses

START_TEST(receives_are_counted_in_bytes) {
  const QueueSpace space = QueueSpace::for_receives(3, {{32, 16}, 64, {{16, 16}, 32}}, 4);  // 96 bytes each
  RxCredits credits(space);
  ck_assert_uint_eq(credits.size_left(), 3);
  for (int i = 0; i < 6; ++i) {  // of two pieces, 64 bytes with the alignment: four of them fit, and a half
    const std::uint64_t before = credits.size_left();
    ck_assert_int_eq(credits.take(space.needed(2), &kBuffers[i]), i < 4);
    ck_assert(i < 4 || credits.size_left() == before);
  }
  ck_assert_uint_eq(credits.posted(), 4);
  ck_assert(!credits.has_room());
  credits.completed(space.needed(2), &kBuffers[2]);
  ck_assert_uint_eq(credits.size_left(), 1);
  for (const int i : {0, 3, 1}) {
    credits.completed(space.needed(2), &kBuffers[i]);
  }
  ck_assert(credits.is_full() && credits.posted() == 0);
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

/// The same of a receive queue. Receives complete in any order.
template <class Credits>
std::string exercise_receives(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&random](std::uint32_t most) { return static_cast<std::uint32_t>(random() % (most + 1)); };
  DeviceCosts costs;
  if (up_to(2) > 0) {
    costs.receive = {{up_to(3) == 0 ? 0 : 8 + up_to(24), 0}, 1U << up_to(6)};
    costs.receive.operation.iov_size = costs.receive.operation.fixed_entries() ? 0 : up_to(32);
  }
  const std::uint32_t count = 1 + up_to(40);
  const std::uint32_t most_pieces = 1 + up_to(4);
  const QueueSpace space = QueueSpace::for_receives(count, costs, most_pieces);
  Credits credits(space);
  std::vector<int> buffers(2 * space.size() / space.needed(1) + 1);
  std::vector<std::pair<const int*, std::uint64_t>> posted;
  std::vector<const int*> spare;
  for (const int& buffer : buffers) {
    spare.push_back(&buffer);
  }
  for (unsigned step = 0; step < 400; ++step) {
    const std::uint64_t left = credits.size_left();
    if (left + posted.size() < count) {
      return "says less than plain counting";
    }
    if ((left > 0) != credits.has_room()) {
      return "two answers to one question";
    }
    if (up_to(20) == 0) {  // the promise: so many receives of the largest size
      Credits copy = credits;
      for (std::uint64_t i = 0; i < left; ++i) {
        if (!copy.take(space.largest(), spare[i])) {
          return "promised more than fits";
        }
      }
    }
    if (up_to(2) != 0) {
      const std::uint64_t bytes = space.needed(1 + up_to(most_pieces - 1));
      const bool taken = credits.take(bytes, spare.back());
      if (!taken && left > 0) {
        return "refused although there was room";
      }
      if (taken) {
        posted.emplace_back(spare.back(), bytes);
        spare.pop_back();
      }
    } else if (!posted.empty()) {
      std::swap(posted[up_to(static_cast<std::uint32_t>(posted.size() - 1))], posted.back());
      credits.completed(posted.back().second, posted.back().first);
      spare.push_back(posted.back().first);
      posted.pop_back();
    }
    if (credits.posted() != posted.size()) {
      return "does not know what is posted";
    }
  }
  for (const auto& [buffer, bytes] : posted) {
    credits.completed(bytes, buffer);
  }
  return credits.is_full() ? "" : "not full after draining";
}

template <class Credits>
std::string exercise_all_receives() {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    if (const std::string problem = exercise_receives<Credits>(seed); !problem.empty()) {
      return problem;
    }
  }
  return "";
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
  test::check_text(exercise_all_receives<RxCredits>(), "");
}
END_TEST

/// Counts every operation as the largest.
template <class Credits>
struct Pessimist : Credits {
  using Credits::Credits;
  [[nodiscard]] std::uint64_t size_left() const noexcept {
    const std::uint64_t left = Credits::size_left();
    return left > 1 ? left - 1 : left;
  }
};
/// Promises by the smallest operation.
template <class Credits>
struct Optimist : Credits {
  using Credits::Credits;
  [[nodiscard]] std::uint64_t size_left() const noexcept { return Credits::size_left() + 1; }
};
/// Gives the bytes of a receive of one piece back, whatever it took.
struct Forgetful : RxCredits {
  using RxCredits::RxCredits;
  void completed(std::uint64_t /*bytes*/, const void* buffer) noexcept {
    RxCredits::completed(space().needed(1), buffer);
  }
};

START_TEST(the_properties_find_wrong_counts) {
  test::check_text(exercise_all<Pessimist<TxCredits>>(), "says less than plain counting");
  ck_assert(!exercise_all<Optimist<TxCredits>>().empty());
  test::check_text(exercise_all_receives<Pessimist<RxCredits>>(), "says less than plain counting");
  ck_assert(!exercise_all_receives<Optimist<RxCredits>>().empty());
  if constexpr (!kHasLedger) {  // which would end the process
    ck_assert(!exercise_all_receives<Forgetful>().empty());
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("queue_credits", {counts_what_is_left, receives_are_counted_in_bytes,
                                           any_mix_keeps_the_promises, the_properties_find_wrong_counts});
}
