// SPDX-License-Identifier: BSD-3-Clause
//
// The locks of the transmit contexts: which context a thread works in, what it may wait for, and that threads that keep
// to the rule never wait for each other in a circle.
#include <atomic>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "common/accounting/context_locks.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

const bool kThreads = true;
const bool kNoThreads = false;

/// Runs it on a thread of its own, to the end.
void elsewhere(const std::function<void()>& function) {
  std::thread(function).join();
}

START_TEST(without_threads_nothing_is_locked) {
  ContextLocks locks(4, kNoThreads);
  const auto first = locks.lock(3);
  ck_assert_uint_eq(locks.current(), 0);
  elsewhere([&] {
    ck_assert(locks.try_lock(3));
    const auto all = locks.lock_all();
  });
}
END_TEST

START_TEST(threads_get_contexts_in_turn) {
  const ContextLocks locks(3, kThreads);
  std::multiset<unsigned> seen;
  for (int i = 0; i < 6; ++i) {
    elsewhere([&] {
      const unsigned first = locks.current();
      ck_assert_uint_eq(locks.current(), first);  // it stays the same
      seen.insert(first);
    });
  }
  ck_assert(seen == (std::multiset<unsigned>{0, 0, 1, 1, 2, 2}));
}
END_TEST

START_TEST(a_callback_goes_on_in_the_context_it_is_in) {
  ContextLocks locks(4, kThreads);
  const unsigned own = locks.current();
  {
    const auto outer = locks.lock(3);
    ck_assert_uint_eq(locks.current(), 3);
    {
      const auto inner = locks.lock(1);
      ck_assert_uint_eq(locks.current(), 1);
    }
    ck_assert_uint_eq(locks.current(), 3);
  }
  ck_assert_uint_eq(locks.current(), own);
}
END_TEST

START_TEST(only_one_thread_has_a_context) {
  ContextLocks locks(2, kThreads);
  const auto mine = locks.lock(0);
  ck_assert(locks.try_lock(0));  // a callback sends
  elsewhere([&] {
    ck_assert(!locks.try_lock(0));
    ck_assert(locks.try_lock(1));
  });
}
END_TEST

START_TEST(who_holds_a_context_does_not_wait_for_a_higher_one) {
  ContextLocks locks(3, kThreads);
  std::atomic<int> step = 0;
  std::thread other([&] {
    const auto high = locks.lock(2);
    step = 1;
    while (step != 2) {
      std::this_thread::yield();
    }
  });
  while (step != 1) {
    std::this_thread::yield();
  }
  {
    const auto low = locks.lock(1);
    ck_assert(!locks.lock_if_allowed(2));  // would wait for the other thread
    ck_assert(locks.lock_if_allowed(0));
  }
  step = 2;
  other.join();
  const auto low = locks.lock(1);
  ck_assert(locks.lock_if_allowed(2));  // free
}
END_TEST

START_TEST(who_got_a_higher_one_besides_waits_for_none_between) {
  ContextLocks locks(4, kThreads);
  const auto low = locks.lock(1);
  const auto high = locks.lock_if_allowed(3);  // free, so it is had; the thread works there now
  ck_assert(high);
  ck_assert_uint_eq(locks.current(), 3);
  std::atomic<int> step = 0;
  std::thread other([&] {
    const auto between = locks.lock(2);
    step = 1;
    while (step != 2) {
      std::this_thread::yield();
    }
  });
  while (step != 1) {
    std::this_thread::yield();
  }
  ck_assert(!locks.lock_if_allowed(2));  // the other thread may come to wait for context 1
  step = 2;
  other.join();
}
END_TEST

START_TEST(who_holds_some_is_told_so) {
  ContextLocks locks(2, kThreads);
  ck_assert(!locks.holds_some());
  {
    const auto one = locks.lock(1);
    ck_assert(locks.holds_some());  // a callback, which must not take them all
    elsewhere([&] { ck_assert(!locks.holds_some()); });
  }
  const auto all = locks.lock_all();
  ck_assert(!locks.holds_some());
  const auto again = locks.lock_all();
  const auto any = locks.lock(1);
  ck_assert(!locks.holds_some());
  elsewhere([&] { ck_assert(!locks.try_lock(0) && !locks.try_lock(1)); });
}
END_TEST

START_TEST(one_context_is_one_lock) {
  ContextLocks locks(1, kThreads);
  ck_assert_uint_eq(locks.current(), 0);
  const auto one = locks.lock(0);
  ck_assert(!locks.holds_some());  // but all
  const auto all = locks.lock_all();
}
END_TEST

/// What one thread does: as Open MPI calls, with callbacks that call again, to some depth.
void call(ContextLocks& locks, std::mt19937& random, std::vector<std::uint64_t>& guarded, int depth) {
  const auto work = [&](unsigned context) {
    ++guarded[context];
    if (depth < 3 && random() % 2 == 0) {
      call(locks, random, guarded, depth + 1);
    }
  };
  switch (random() % 6) {
    case 0:
      if (!locks.holds_some()) {
        const auto all = locks.lock_all();
        for (std::uint64_t& number : guarded) {
          ++number;
        }
        work(locks.current());
      }
      break;
    case 1: {
      const auto context = static_cast<unsigned>(random() % locks.contexts());
      if (const auto guard = locks.lock_if_allowed(context); guard) {
        work(context);
      }
      break;
    }
    case 2: {  // a peer with fewer contexts
      const unsigned context = locks.current() / 2;
      if (const auto guard = locks.lock_if_allowed(context); guard) {
        work(context);
      }
      break;
    }
    case 3: {
      const auto context = static_cast<unsigned>(random() % locks.contexts());
      if (const auto guard = locks.try_lock(context); guard) {
        work(context);
      }
      break;
    }
    default: {
      const unsigned context = locks.current();
      const auto guard = locks.lock(context);
      work(context);
      break;
    }
  }
}

START_TEST(threads_that_keep_to_the_rule_all_come_to_an_end) {
  for (const unsigned contexts : {1U, 2U, 5U}) {
    ContextLocks locks(contexts, kThreads);
    std::vector<std::uint64_t> guarded(contexts);  // ThreadSanitizer sees whoever writes without the lock
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 6; ++seed) {
      threads.emplace_back([&locks, &guarded, seed] {
        std::mt19937 random(seed);
        for (int i = 0; i < 5000; ++i) {
          call(locks, random, guarded, 0);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    const auto all = locks.lock_all();
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "context_locks",
      {without_threads_nothing_is_locked, threads_get_contexts_in_turn, a_callback_goes_on_in_the_context_it_is_in,
       only_one_thread_has_a_context, who_holds_a_context_does_not_wait_for_a_higher_one,
       who_got_a_higher_one_besides_waits_for_none_between, who_holds_some_is_told_so, one_context_is_one_lock,
       threads_that_keep_to_the_rule_all_come_to_an_end},
      120);
}
