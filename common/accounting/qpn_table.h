// SPDX-License-Identifier: BSD-3-Clause
//
// Finds what belongs to a queue pair number: who sent a message that arrived on a shared receive queue is told by the
// queue pair it came through, and by nothing that the sender wrote.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace fabric {

/// A hash table with linear probing. Lookups are one or two comparisons and never allocate; insert() may, and belongs
/// to set-up.
template <class T>
class QpnTable {
 public:
  QpnTable() : slots_(kInitialSlots) {}

  void insert(std::uint32_t qpn, T* value) {
    assert(value != nullptr && find(qpn) == nullptr);
    if ((count_ + 1) * 2 > slots_.size()) {
      grow();
    }
    place(qpn, value);
    ++count_;
  }

  /// Null for a number that is not (or no longer) here.
  [[nodiscard]] T* find(std::uint32_t qpn) const noexcept {
    for (std::size_t i = home(qpn);; i = next(i)) {
      const Slot& slot = slots_[i];
      if (slot.value == nullptr || slot.qpn == qpn) {
        return slot.value;
      }
    }
  }

  void erase(std::uint32_t qpn) noexcept {
    std::size_t hole = home(qpn);
    while (slots_[hole].value != nullptr && slots_[hole].qpn != qpn) {
      hole = next(hole);
    }
    if (slots_[hole].value == nullptr) {
      return;
    }
    --count_;
    // Move up whatever probed past the hole, so that no search stops short (Knuth, volume 3, algorithm 6.4R).
    for (std::size_t i = next(hole); slots_[i].value != nullptr; i = next(i)) {
      const std::size_t wanted = home(slots_[i].qpn);
      const bool reaches_hole = hole <= i ? (wanted <= hole || wanted > i) : (wanted <= hole && wanted > i);
      if (reaches_hole) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = Slot{};
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  struct Slot {
    std::uint32_t qpn = 0;
    T* value = nullptr;
  };
  static constexpr std::size_t kInitialSlots = 16;

  [[nodiscard]] std::size_t home(std::uint32_t qpn) const noexcept {
    return (qpn * 2654435761u >> 8) & (slots_.size() - 1);  // Knuth's multiplicative hash: numbers often step by 2^n
  }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }

  void place(std::uint32_t qpn, T* value) noexcept {
    std::size_t i = home(qpn);
    while (slots_[i].value != nullptr) {
      i = next(i);
    }
    slots_[i] = {qpn, value};
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value != nullptr) {
        place(slot.qpn, slot.value);
      }
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace fabric
