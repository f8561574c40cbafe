// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/cache_guard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "btl_fabric/base/registration.h"

namespace fabric {

namespace {

using Cache = mca_rcache_base_module_t;

/// What the caches did before they were guarded.
struct Calls {
  decltype(Cache::rcache_register) enter;
  decltype(Cache::rcache_deregister) leave;
  decltype(Cache::rcache_evict) evict;
  decltype(Cache::rcache_invalidate_range) invalidate;
};
Calls calls{};

/// Memory that has been released while a thread was in a cache. It is written in the middle of free(): nothing is allocated.
struct Notes {
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };

  Cache* cache = nullptr;  ///< null: nobody's
  std::size_t count = 0;
  std::array<Range, 32> ranges{};

  void add(const Range& range) noexcept {
    if (count < ranges.size()) {
      ranges[count++] = range;
    } else {  // to invalidate too much costs only time
      Range& last = ranges.back();
      last = {std::min(last.begin, range.begin), std::max(last.end, range.end)};
    }
  }
};

std::mutex inside;       ///< of the caches
std::mutex notes_mutex;  ///< taken last, and for a few instructions
std::array<Notes, kMostCaches> all_notes;
std::atomic<bool> has_notes = false;
/// Of this thread's calls within each other.
[[gnu::tls_model("initial-exec")]] constinit thread_local unsigned depth = 0;

void note(Cache* cache, void* base, size_t size) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::lock_guard guard(notes_mutex);
  for (Notes& notes : all_notes) {
    if (notes.cache == cache) {
      notes.add({begin, begin + size});
      has_notes = true;
    }
  }
}

[[gnu::cold, gnu::noinline]] void invalidate_noted() noexcept {
  std::array<Notes, kMostCaches> noted;
  {
    const std::lock_guard guard(notes_mutex);
    noted = all_notes;
    for (Notes& notes : all_notes) {
      notes.count = 0;
    }
    has_notes = false;
  }
  for (const Notes& notes : noted) {
    for (std::size_t i = 0; i < notes.count; ++i) {
      const auto [begin, end] = notes.ranges[i];
      (void)calls.invalidate(notes.cache, reinterpret_cast<void*>(begin), end - begin);
    }
  }
}

/// The thread is in a cache.
class Inside {
 public:
  Inside() noexcept {
    if (depth == 0) {
      inside.lock();
    }
    ++depth;
    if (depth == 1 && has_notes) [[unlikely]] {
      invalidate_noted();
    }
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (--depth == 0) {
      inside.unlock();
    }
  }
};

int enter(Cache* cache, void* base, size_t size, std::uint32_t flags, std::int32_t access,
          mca_rcache_base_registration_t** registration) {
  const Inside guard;
  return calls.enter(cache, base, size, flags, access, registration);
}

int leave(Cache* cache, mca_rcache_base_registration_t* registration) {
  const Inside guard;
  return calls.leave(cache, registration);
}

bool evict(Cache* cache) {
  const Inside guard;
  return calls.evict(cache);
}

/// In the middle of free() or munmap(), perhaps with a lock of theirs that whoever is inside waits for.
int invalidate(Cache* cache, void* base, size_t size) {
  if (in_forked_child) {
    return OPAL_SUCCESS;
  }
  if (depth > 0 || !inside.try_lock()) {
    note(cache, base, size);
    return OPAL_SUCCESS;
  }
  ++depth;
  const int result = calls.invalidate(cache, base, size);
  --depth;
  inside.unlock();
  return result;
}

}  // namespace

void guard_cache(mca_rcache_base_module_t& cache) noexcept {
  const std::lock_guard guard(notes_mutex);
  const auto free =
      std::find_if(all_notes.begin(), all_notes.end(), [](const Notes& one) { return one.cache == nullptr; });
  if (free == all_notes.end()) {
    return;
  }
  free->cache = &cache;
  calls = {cache.rcache_register, cache.rcache_deregister, cache.rcache_evict, cache.rcache_invalidate_range};
  cache.rcache_register = enter;
  cache.rcache_deregister = leave;
  cache.rcache_evict = evict;
  cache.rcache_invalidate_range = invalidate;
}

void unguard_cache(const mca_rcache_base_module_t& cache) noexcept {
  const std::lock_guard guard(notes_mutex);
  for (Notes& notes : all_notes) {
    if (notes.cache == &cache) {
      notes = {};
    }
  }
}

}  // namespace fabric
