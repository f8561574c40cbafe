// SPDX-License-Identifier: BSD-3-Clause
#include "common/rdma/mr_pool.h"

#include <algorithm>
#include <cassert>

namespace fabric {

MrPool::MrPool(RdmaVerbs& verbs, const MrPoolHints& hints)
    : verbs_(verbs),
      bytes_(std::max<std::uint64_t>(1, hints.operations) * hints.bytes_each),
      bytes_left_(bytes_),
      windows_left_(hints.windows),
      slots_(std::max(1U, hints.operations)) {
  free_.reserve(slots_.size());
  free_windows_.reserve(slots_.size());
  for (Slot& slot : slots_) {
    free_.push_back(&slot);
  }
}

MrPool::~MrPool() {
  destroy_windows();
}

void MrPool::destroy_windows() noexcept {
  assert(in_use() == 0);
  while (!free_windows_.empty()) {
    Slot* slot = take(free_windows_, free_);
    verbs_.destroy_window(slot->window);
    slot->window = nullptr;
    ++windows_left_;
    free_.push_back(slot);
  }
}

MrPool::Slot* MrPool::register_memory(void* address, std::uint64_t length, unsigned access) noexcept {
  // One operation larger than all hints still goes, alone: otherwise it would wait for ever.
  const bool fits = length <= bytes_left_ || bytes_left_ == bytes_;
  if (in_use() == slots_.size() || !fits) {
    return nullptr;
  }
  // One is kept for the first, so that operations can always go one after the other.
  const RegionUse use = in_use() == 0 ? RegionUse::kFirstTemporary : RegionUse::kOperations;
  ibv_mr* mr = verbs_.register_memory(address, length, access, use);
  if (mr == nullptr) {
    return nullptr;
  }
  Slot* slot = take(free_, free_windows_);
  slot->mr = mr;
  slot->use = use;
  slot->bytes = std::min(length, bytes_left_);
  bytes_left_ -= slot->bytes;
  return slot;
}

MrPool::Slot* MrPool::take_window() noexcept {
  Slot* slot = take(free_windows_, free_);
  if (slot == nullptr) {
    return nullptr;
  }
  if (slot->window == nullptr && windows_left_ > 0) {
    slot->window = verbs_.make_window();
    windows_left_ -= slot->window != nullptr ? 1 : 0;
  }
  slot->bytes = 0;
  if (slot->window == nullptr) {
    give_back(slot);
    return nullptr;
  }
  return slot;
}

MrPool::Slot* MrPool::take(std::vector<Slot*>& preferred, std::vector<Slot*>& other) noexcept {
  std::vector<Slot*>& from = preferred.empty() ? other : preferred;
  if (from.empty()) {
    return nullptr;
  }
  Slot* slot = from.back();
  from.pop_back();
  return slot;
}

void MrPool::give_back_bound(Slot* slot) noexcept {
  if (slot->mr == nullptr && slot->window != nullptr) {
    verbs_.destroy_window(slot->window);
    slot->window = nullptr;
    ++windows_left_;
  }
  give_back(slot);
}

void MrPool::give_back(Slot* slot) noexcept {
  if (slot->mr != nullptr) {
    verbs_.deregister_memory(slot->mr, slot->use);
    slot->mr = nullptr;
  }
  bytes_left_ += slot->bytes;
  slot->bytes = 0;
  (slot->window != nullptr ? free_windows_ : free_).push_back(slot);
  assert(free_.size() + free_windows_.size() <= slots_.size() && bytes_left_ <= bytes_);
}

}  // namespace fabric
