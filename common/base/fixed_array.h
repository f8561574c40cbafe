// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <utility>

namespace fabric {

/// An array for a number of objects that is known when it is made. They are made one after the other, never move, and lie next to
/// each other: for what a std::vector does not take because it cannot be moved, and a std::deque finds by a detour.
template <class T>
class FixedArray {
 public:
  /// Room for `most` objects. Throws std::bad_alloc.
  explicit FixedArray(std::size_t most) : first_(std::allocator<T>().allocate(most)), most_(most) {}
  FixedArray(const FixedArray&) = delete;
  FixedArray& operator=(const FixedArray&) = delete;
  ~FixedArray() {
    while (size_ > 0) {
      std::destroy_at(first_ + --size_);
    }
    std::allocator<T>().deallocate(first_, most_);
  }

  /// Makes the next one, of which there must be room.
  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    assert(size_ < most_);
    T* const made = std::construct_at(first_ + size_, std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return first_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return first_[index]; }
  [[nodiscard]] T& front() noexcept { return *first_; }
  [[nodiscard]] const T& front() const noexcept { return *first_; }
  [[nodiscard]] T* begin() noexcept { return first_; }
  [[nodiscard]] T* end() noexcept { return first_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return first_; }
  [[nodiscard]] const T* end() const noexcept { return first_ + size_; }

 private:
  T* const first_;
  const std::size_t most_;
  std::size_t size_ = 0;
};

}  // namespace fabric
