// SPDX-License-Identifier: BSD-3-Clause
//
// Caches that wait for nobody: one thread at a time is in them, and memory that is released meanwhile is invalidated before the
// next looks for a region.
#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "btl_fabric/base/cache_guard.h"
#include "test/unit/check_main.h"

namespace {

using namespace fabric;

/// What Open MPI's module would do, in its place.
struct FakeCache : mca_rcache_base_module_t {
  FakeCache() : mca_rcache_base_module_t{} {
    rcache_register = [](mca_rcache_base_module_t* cache, void* base, size_t, std::uint32_t, std::int32_t,
                         mca_rcache_base_registration_t**) {
      of(cache).does("register", base, 0);
      return int{OPAL_SUCCESS};
    };
    rcache_deregister = [](mca_rcache_base_module_t* cache, mca_rcache_base_registration_t*) {
      of(cache).does("deregister", nullptr, 0);
      return int{OPAL_SUCCESS};
    };
    rcache_evict = [](mca_rcache_base_module_t* cache) {
      of(cache).does("evict", nullptr, 0);
      return true;
    };
    rcache_invalidate_range = [](mca_rcache_base_module_t* cache, void* base, size_t size) {
      of(cache).does("invalidate", base, size);
      return int{OPAL_ERROR};
    };
    guard_cache(*this);
  }
  ~FakeCache() { unguard_cache(*this); }
  FakeCache(const FakeCache&) = delete;
  FakeCache& operator=(const FakeCache&) = delete;

  static FakeCache& of(mca_rcache_base_module_t* cache) { return *static_cast<FakeCache*>(cache); }

  int look_for(std::uintptr_t base) { return rcache_register(this, reinterpret_cast<void*>(base), 1, 0, 0, nullptr); }
  int release(std::uintptr_t base, std::size_t size) {
    return rcache_invalidate_range(this, reinterpret_cast<void*>(base), size);
  }

  void does(const std::string& what, void* base, std::size_t size) {
    ck_assert_int_eq(inside.fetch_add(1), 0);
    said.push_back(what + ' ' + std::to_string(reinterpret_cast<std::uintptr_t>(base)) + '+' + std::to_string(size));
    if (const auto now = std::exchange(meanwhile, nullptr)) {
      inside = 0;  // what this thread does then is in the same call
      now();
      inside = 1;
    }
    --inside;
  }

  static inline std::atomic<int> inside = 0;  // of all caches
  std::vector<std::string> said;
  std::function<void()> meanwhile;  // in the next call
};

using Said = std::vector<std::string>;

START_TEST(what_is_released_is_invalidated_at_once_if_nobody_is_inside) {
  FakeCache cache;
  ck_assert_int_eq(cache.release(4096, 100), OPAL_ERROR);  // as the cache says
  ck_assert(cache.said == Said{"invalidate 4096+100"});
}
END_TEST

START_TEST(what_is_released_meanwhile_is_invalidated_before_the_next_search) {
  FakeCache cache;
  FakeCache other;
  cache.meanwhile = [&] {
    std::thread([&] {  // which does not wait for us
      ck_assert_int_eq(cache.release(8, 2), OPAL_SUCCESS);
      ck_assert_int_eq(other.release(16, 4), OPAL_SUCCESS);
    })
        .join();
  };
  cache.look_for(1);
  ck_assert(cache.said == Said{"register 1+0"} && other.said.empty());
  other.look_for(2);
  ck_assert((cache.said == Said{"register 1+0", "invalidate 8+2"}));
  ck_assert((other.said == Said{"invalidate 16+4", "register 2+0"}));
  cache.look_for(3);
  ck_assert_uint_eq(cache.said.size(), 3);
}
END_TEST

START_TEST(a_call_may_release_memory_itself) {
  FakeCache cache;
  cache.meanwhile = [&] { ck_assert_int_eq(cache.release(8, 2), OPAL_SUCCESS); };
  ck_assert(cache.rcache_evict(&cache));
  cache.look_for(4);
  cache.meanwhile = [&] { cache.rcache_deregister(&cache, nullptr); };
  cache.look_for(5);
  ck_assert((cache.said == Said{"evict 0+0", "invalidate 8+2", "register 4+0", "register 5+0", "deregister 0+0"}));
}
END_TEST

START_TEST(no_note_is_lost) {
  FakeCache cache;
  cache.meanwhile = [&] {
    for (std::uintptr_t i = 1; i <= 100; ++i) {
      ck_assert_int_eq(cache.release(i * 10, 5), OPAL_SUCCESS);
    }
  };
  cache.look_for(1);
  cache.said.clear();
  cache.look_for(2);
  std::vector<bool> covered(101);
  for (const std::string& one : cache.said) {
    unsigned long base = 0;
    unsigned long size = 0;
    if (std::sscanf(one.c_str(), "invalidate %lu+%lu", &base, &size) == 2) {
      for (unsigned long i = 1; i <= 100; ++i) {
        covered[i] = covered[i] || (base <= i * 10 && i * 10 + 5 <= base + size);
      }
    }
  }
  ck_assert_int_eq(std::count(covered.begin() + 1, covered.end(), true), 100);
}
END_TEST

START_TEST(threads_take_turns) {
  FakeCache caches[2];
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (unsigned i = 0; i < 2000; ++i) {
        FakeCache& cache = caches[(number + i) % 2];
        switch (i % 4) {
          case 0:
            cache.release(std::uintptr_t{number} * 100000 + i, 1);
            break;
          case 1:
            cache.rcache_evict(&cache);
            break;
          case 2:
            cache.rcache_deregister(&cache, nullptr);
            break;
          default:
            cache.look_for(i);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}
END_TEST

START_TEST(a_cache_that_has_gone_gets_no_notes) {
  FakeCache cache;
  {
    FakeCache gone;
    cache.meanwhile = [&] { (void)gone.release(8, 2); };
    cache.look_for(1);
    for (int i = 0; i < 100; ++i) {
      const FakeCache another;  // places are used again
    }
  }
  cache.look_for(2);
  ck_assert((cache.said == Said{"register 1+0", "register 2+0"}));
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("cache guard", {what_is_released_is_invalidated_at_once_if_nobody_is_inside,
                                                 what_is_released_meanwhile_is_invalidated_before_the_next_search,
                                                 a_call_may_release_memory_itself, no_note_is_lost, threads_take_turns,
                                                 a_cache_that_has_gone_gets_no_notes});
}
