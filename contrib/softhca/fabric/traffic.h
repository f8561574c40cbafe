// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts of messages, for who looks at a fabric (softhca-ctl top).
#include <atomic>
#include <cstdint>

namespace softhca {

// As seen from the process in whose slot it is. One thread at a time writes it, under a lock that it holds anyway, so plain loads
// and stores do; others read what may be a message old.
struct Traffic {
  std::atomic<uint64_t> messages;
  std::atomic<uint64_t> bytes_in;
  std::atomic<uint64_t> bytes_out;

  void count(uint64_t in, uint64_t out) { add(1, in, out); }
  void count_in(uint64_t in) {
    increase(messages, 1);
    increase(bytes_in, in);
  }
  void count_out(uint64_t out) {
    increase(messages, 1);
    increase(bytes_out, out);
  }
  void add(uint64_t count, uint64_t in, uint64_t out) {
    increase(messages, count);
    increase(bytes_in, in);
    increase(bytes_out, out);
  }
  void clear() {
    messages.store(0, std::memory_order_relaxed);
    bytes_in.store(0, std::memory_order_relaxed);
    bytes_out.store(0, std::memory_order_relaxed);
  }

 private:
  static void increase(std::atomic<uint64_t>& sum, uint64_t by) {
    sum.store(sum.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

// On a cache line of its own, which stays with the processor that writes.
struct alignas(64) OwnTraffic : Traffic {};

}  // namespace softhca
