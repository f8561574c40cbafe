// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of a queue pair, in shared memory: ibv_qp_state, and what tells one time in that state from every other.
#include <atomic>
#include <cstdint>

namespace softhca {

// All that a queue pair is made of changes on its way through the states only: its number, type, ports, its other side, its domain, its
// queues. So the word has, besides the state, which owner of the slot has made the queue pair, and a count of all stores: who has
// once looked at everything, and finds the same word again, knows that nothing of it has changed, and that it is the same queue
// pair of the same process. 2^40 stores do not happen between two looks.
class QpState {
 public:
  // An ibv_qp_state.
  uint32_t load(std::memory_order order = std::memory_order_seq_cst) const {
    return static_cast<uint8_t>(word_.load(order));
  }
  // The whole word: equal to another look's only if nothing was stored between the two. Never 0 where begin() has been.
  uint64_t look(std::memory_order order) const { return word_.load(order); }
  static constexpr uint32_t incarnation_in(uint64_t word) { return word >> kStateBits & 0xffff; }

  // Any process, with QpShared::lock or without.
  void store(uint32_t state, std::memory_order order = std::memory_order_seq_cst) {
    uint64_t before = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(before, next(before, state, incarnation_in(before)), order,
                                        std::memory_order_relaxed)) {
    }
  }
  // The same for the owner, whose incarnation (16 bits, not 0) is noted: the queue pair is new.
  void begin(uint32_t state, uint32_t incarnation) {
    word_.store(next(word_.load(std::memory_order_relaxed), state, incarnation), std::memory_order_release);
  }

 private:
  static constexpr unsigned kStateBits = 8;
  static constexpr unsigned kCountShift = 24;
  static constexpr uint64_t next(uint64_t before, uint32_t state, uint32_t incarnation) {
    return ((before >> kCountShift) + 1) << kCountShift | uint64_t{incarnation & 0xffff} << kStateBits | (state & 0xff);
  }

  std::atomic<uint64_t> word_;
};

}  // namespace softhca
