// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which entries of a table are taken. The search goes on where the last one ended, so that a number comes back as late as
// possible: what is used after its end is then found, and not mistaken for something new.
#include <bitset>
#include <mutex>

namespace softhca {

template <unsigned kCount>
class IndexPool {
 public:
  // Indices below `first`, and from `end` on, are never given.
  explicit IndexPool(unsigned first, unsigned end = kCount) : first_(first), end_(end), next_(first) {}

  // `limit` is how many may be taken at once. 0: none is left.
  unsigned allocate(unsigned limit) {
    std::lock_guard guard(mutex_);
    if (used_ >= limit || used_ >= end_ - first_) return 0;
    while (taken_[next_]) advance();
    const unsigned index = next_;
    taken_[index] = true;
    ++used_;
    advance();
    return index;
  }
  void release(unsigned index) {
    std::lock_guard guard(mutex_);
    taken_[index] = false;
    --used_;
  }

 private:
  void advance() { next_ = next_ + 1 == end_ ? first_ : next_ + 1; }

  const unsigned first_;
  const unsigned end_;
  unsigned next_;
  unsigned used_ = 0;
  std::mutex mutex_;
  std::bitset<kCount> taken_;
};

}  // namespace softhca
