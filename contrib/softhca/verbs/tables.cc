// SPDX-License-Identifier: BSD-3-Clause
// How an object goes away safely. Its owner clears the pointer here, then takes and releases lookup_mutex(): from then on no
// engine uses the object or can find it. Who polls looks it up under the mutex of a CQ that the object completes to; the
// owner takes those mutexes as well (purge). Only then is the object freed.
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

std::mutex& lookup_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace softhca
