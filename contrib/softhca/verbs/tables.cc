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

void add_handle(Qp& target) {
  std::lock_guard guard(lookup_mutex());
  target.events_seen = target.shared->events.load();  // what has been before is not told
  std::atomic<Qp*>& first = tables().targets[target.index];
  Qp* last = first.load(std::memory_order_relaxed);
  if (last == nullptr) return first.store(&target, std::memory_order_release);
  while (last->next_handle != nullptr) last = last->next_handle;
  last->next_handle = &target;
}

void remove_handle(Qp& target) {
  std::lock_guard guard(lookup_mutex());
  std::atomic<Qp*>& first = tables().targets[target.index];
  Qp* before = first.load(std::memory_order_relaxed);
  if (before == &target) return first.store(target.next_handle, std::memory_order_release);
  while (before != nullptr && before->next_handle != &target) before = before->next_handle;
  if (before != nullptr) before->next_handle = target.next_handle;
}

}  // namespace softhca
