// SPDX-License-Identifier: BSD-3-Clause
//
// What the connections of this process take of its memory now, for the level connection_memory (counter_table.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "cpc/queue_pairs/queue_memory.h"

namespace fabric {

/// Bytes, as queue_memory.h reckons them. For all threads.
inline std::atomic<std::uint64_t> connection_memory_now = 0;

/// What one connection has of it, or a queue pair that connections share. It is given back with this object.
class CountedMemory {
 public:
  CountedMemory() = default;
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;
  ~CountedMemory() { connection_memory_now.fetch_sub(bytes_, std::memory_order_relaxed); }

  void add(const cpc::MemoryParts& more) noexcept {
    bytes_ += more.sum();
    connection_memory_now.fetch_add(more.sum(), std::memory_order_relaxed);
  }

 private:
  std::uint64_t bytes_ = 0;
};

}  // namespace fabric
