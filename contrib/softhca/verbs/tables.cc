// SPDX-License-Identifier: BSD-3-Clause
// How an object goes away safely. Its owner clears the pointer here, then takes and releases lookup_mutex(): from then on no
// engine uses the object or can find it. Who polls looks it up under the mutex of a CQ that the object completes to; the
// owner takes those mutexes as well (purge). Only then is the object freed.
#include "fabric/of_member.h"
#include "verbs/objects.h"

namespace softhca {

Tables& tables() {
  static Tables tables;
  return tables;
}

void reach(std::atomic<unsigned>& end, unsigned index) {
  unsigned before = end.load(std::memory_order_relaxed);
  while (before <= index && !end.compare_exchange_weak(before, index + 1)) {
  }
}

void forget_tables() {
  Tables& all = tables();
  const auto clear = [](auto& table, std::atomic<unsigned>& end) {
    for (unsigned i = 0; i < end.load(std::memory_order_relaxed); ++i)
      table[i].store(nullptr, std::memory_order_relaxed);
    end.store(0, std::memory_order_relaxed);
  };
  clear(all.qps, all.qps_end);
  clear(all.cqs, all.cqs_end);
  clear(all.srqs, all.srqs_end);
  for (auto& target : all.targets) target.store(nullptr, std::memory_order_relaxed);
}

namespace {
struct Lookup {
  std::mutex mutex;
};
}  // namespace

std::mutex& lookup_mutex() {
  return of_member<Lookup>().mutex;
}

}  // namespace softhca
