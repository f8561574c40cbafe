// SPDX-License-Identifier: BSD-3-Clause
//
// Pools of message buffers that have a limit: the buffer beyond it is for those who free another one.
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "test/unit/path_parts.h"

using namespace fabric;
using namespace fabric::test;

namespace {

struct Pool {
  explicit Pool(int limit, int initial = 0)
      : buffers(device), pool(FragmentPool::make(buffers.source(), 0, false, 256, {initial, limit, 2}).value()) {}
  /// As many as there are; they are kept.
  std::size_t take_all() {
    const std::size_t before = taken.size();
    for (Fragment* one = pool->get(); one != nullptr && taken.size() < 100; one = pool->get()) {
      taken.push_back(one);
    }
    return taken.size() - before;
  }
  void put_one() {
    pool->put(taken.back());
    taken.pop_back();
  }

  FakeDevice device;
  FakeBuffers buffers;
  std::unique_ptr<FragmentPool> pool;
  std::vector<Fragment*> taken;
};

}  // namespace

START_TEST(a_limit_is_kept) {
  Pool with(5);
  ck_assert_uint_eq(with.take_all(), 5);
  with.put_one();
  with.put_one();
  ck_assert_uint_eq(with.take_all(), 2);
  Pool made_at_first(5, 8);
  ck_assert_uint_eq(made_at_first.take_all(), 5);
  Pool one(1, 1);
  ck_assert_uint_eq(one.take_all(), 1);
  Pool without(0);
  ck_assert_uint_eq(without.take_all(), 100);
}
END_TEST

START_TEST(who_frees_a_buffer_has_one_more) {
  Pool with(5);
  ck_assert_uint_eq(with.take_all(), 5);
  for (int round = 0; round < 3; ++round) {
    {
      const FragmentPool::Spare outer(*with.pool);
      {
        const FragmentPool::Spare inner(*with.pool);
        ck_assert_uint_eq(with.take_all(), 1);
      }
      ck_assert_uint_eq(with.take_all(), 0);
      with.put_one();  // the one that it frees takes the place of the spare one
    }
    ck_assert_uint_eq(with.take_all(), 0);
  }
  with.put_one();
  ck_assert_uint_eq(with.take_all(), 1);
}
END_TEST

START_TEST(without_memory_there_is_no_spare_one) {
  Pool with(4);
  ck_assert_uint_eq(with.take_all(), 4);
  const FragmentPool::Spare spare(*with.pool);
  with.device.registers = false;
  ck_assert_uint_eq(with.take_all(), 0);
  with.device.registers = true;
  ck_assert_uint_eq(with.take_all(), 1);
}
END_TEST

START_TEST(another_thread_has_no_part_in_it) {
  opal_set_using_threads(true);
  Pool with(3);
  ck_assert_uint_eq(with.take_all(), 3);
  const FragmentPool::Spare spare(*with.pool);
  std::thread([&with] { ck_assert_ptr_null(with.pool->get()); }).join();
  ck_assert_uint_eq(with.take_all(), 1);
}
END_TEST

/// Nor what it makes, while the list may grow for it.
START_TEST(it_is_made_for_its_thread) {
  opal_set_using_threads(true);
  for (int round = 0; round < 300; ++round) {
    Pool with(2);
    ck_assert_uint_eq(with.take_all(), 2);
    std::atomic<bool> ends = false;
    std::atomic<int> found = 0;
    std::thread other([&] {
      while (!ends) {
        found += with.pool->get() != nullptr ? 1 : 0;
      }
    });
    std::this_thread::yield();
    const FragmentPool::Spare spare(*with.pool);
    ck_assert_uint_eq(with.take_all(), 1);
    ends = true;
    other.join();
    ck_assert_int_eq(found, 0);
  }
}
END_TEST

int main() {
  return run_suite("fragment_pool",
                   {a_limit_is_kept, who_frees_a_buffer_has_one_more, without_memory_there_is_no_spare_one,
                    another_thread_has_no_part_in_it, it_is_made_for_its_thread});
}
