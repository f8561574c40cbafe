// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/kept_packets.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace fabric {
namespace {

constexpr std::size_t kFirst = 4;  ///< packets. Most connections never have more under way

}  // namespace

/// There is no room up to the limit: at the other end there may be some, or there is in more memory.
[[gnu::cold]] bool KeptPackets::make_room() noexcept {
  if (is_lossy_) {
    return false;
  }
  if (memory_ && !is_wrapped() && begin_ > longest_) {
    wrapped_at_ = std::exchange(end_, 0);
    set_limit();
    return true;
  }
  is_lossy_ = !grow();
  return !is_lossy_;
}

[[gnu::cold]] bool KeptPackets::grow() noexcept {
  // With those at the end of the memory, and at the end of the oldest, that take no packet.
  const std::size_t largest = (most_ + 2) * longest_;
  if (size_ == largest) {
    assert(false);  // there are more than `most_`
    return false;
  }
  const std::size_t size = std::min(std::max(kFirst * longest_, 2 * size_), largest);
  try {
    ends_.resize(most_ + 1);
    move_to(std::make_unique_for_overwrite<std::byte[]>(size), size);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// The oldest packet is the first one there.
[[gnu::cold]] void KeptPackets::move_to(std::unique_ptr<std::byte[]> larger, std::size_t size) noexcept {
  const std::size_t oldest = is_wrapped() ? wrapped_at_ - begin_ : end_ - begin_;
  const std::size_t newest = is_wrapped() ? end_ : 0;
  if (memory_) {
    std::memcpy(larger.get(), memory_.get() + begin_, oldest);
    std::memcpy(larger.get() + oldest, memory_.get(), newest);
  }
  for (std::size_t i = 0; i < ends_count_; ++i) {
    std::uint32_t& end = ends_[(first_end_ + i) % ends_.size()];
    end = static_cast<std::uint32_t>(end >= begin_ ? end - begin_ : end + oldest);
  }
  memory_ = std::move(larger);
  size_ = size;
  begin_ = 0;
  end_ = oldest + newest;
  set_limit();
}

}  // namespace fabric
