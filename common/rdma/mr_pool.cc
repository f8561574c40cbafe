// SPDX-License-Identifier: BSD-3-Clause
#include "common/rdma/mr_pool.h"

#include <algorithm>
#include <cassert>

namespace fabric {

MrPool::MrPool(RdmaVerbs& verbs, const MrPoolHints& hints)
    : verbs_(verbs),
      bytes_(std::max<std::uint64_t>(1, hints.operations) * hints.bytes_each),
      bytes_left_(bytes_),
      slots_(std::max(1U, hints.operations)) {
  free_.reserve(slots_.size());
  for (Slot& slot : slots_) {
    free_.push_back(&slot);
  }
}

MrPool::~MrPool() {
  assert(in_use() == 0);
  for (const Slot& slot : slots_) {
    if (slot.window != nullptr) {
      verbs_.destroy_window(slot.window);
    }
  }
}

MrPool::Slot* MrPool::register_memory(void* address, std::uint64_t length, unsigned access) noexcept {
  // One operation larger than all hints still goes, alone: otherwise it would wait for ever.
  const bool fits = length <= bytes_left_ || bytes_left_ == bytes_;
  if (free_.empty() || !fits) {
    return nullptr;
  }
  // The first comes from the reserve, so that operations can always go one after the other.
  const RegionUse use = in_use() == 0 ? RegionUse::kReserve : RegionUse::kSinks;
  ibv_mr* mr = verbs_.register_memory(address, length, access, use);
  if (mr == nullptr) {
    return nullptr;
  }
  Slot* slot = free_.back();
  free_.pop_back();
  slot->mr = mr;
  slot->use = use;
  slot->bytes = std::min(length, bytes_left_);
  bytes_left_ -= slot->bytes;
  return slot;
}

MrPool::Slot* MrPool::take_window() noexcept {
  if (free_.empty()) {
    return nullptr;
  }
  Slot* slot = free_.back();
  if (slot->window == nullptr) {
    slot->window = verbs_.make_window();
  }
  if (slot->window == nullptr) {
    return nullptr;
  }
  free_.pop_back();
  slot->bytes = 0;
  return slot;
}

void MrPool::give_back(Slot* slot) noexcept {
  if (slot->mr != nullptr) {
    verbs_.deregister_memory(slot->mr, slot->use);
    slot->mr = nullptr;
  }
  bytes_left_ += slot->bytes;
  slot->bytes = 0;
  free_.push_back(slot);
  assert(free_.size() <= slots_.size() && bytes_left_ <= bytes_);
}

}  // namespace fabric
