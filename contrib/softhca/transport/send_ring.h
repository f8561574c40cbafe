// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory of a send queue. Pages of its own: a process with many connections uses little of each queue, and what it does not
// use takes no memory, nor spreads what the heap has over more pages.
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace softhca {

class SendRing {
 public:
  SendRing() = default;
  SendRing(SendRing&& other) noexcept { *this = std::move(other); }
  SendRing& operator=(SendRing&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(size_, other.size_);
    std::swap(first_, other.first_);
    return *this;
  }
  ~SendRing() {
    if (pages_ != nullptr) munmap(pages_, size_);
  }

  // False if there is no memory.
  bool allocate(size_t bytes) {
    // The first entries of all queues must not compete for the same lines of the cache.
    static std::atomic<size_t> made{0};
    const size_t shift = made.fetch_add(1, std::memory_order_relaxed) % kShifts * kShift;
    SendRing ring;
    ring.size_ = bytes + shift;
    void* pages = mmap(nullptr, ring.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    ring.pages_ = pages;
    ring.first_ = static_cast<uint8_t*>(pages) + shift;
    *this = std::move(ring);
    return true;
  }
  // Memory that is not the ring's own: it stays whose it is.
  void lie_in(void* memory) { first_ = static_cast<uint8_t*>(memory); }
  uint8_t* get() const { return first_; }

 private:
  static constexpr size_t kShift = 256;  // a multiple of the 64 bytes that entries are aligned to
  static constexpr size_t kShifts = 8;

  void* pages_{nullptr};
  size_t size_{0};
  uint8_t* first_{nullptr};
};

}  // namespace softhca
