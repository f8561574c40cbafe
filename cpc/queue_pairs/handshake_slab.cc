// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/handshake_slab.h"

#include <cerrno>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

HandshakeSlab::~HandshakeSlab() {
  while (!blocks_.empty()) {
    blocks_.pop_back();
    if (budget_ != nullptr) {
      budget_->give_back(RegionUse::kReserve);
    }
  }
}

Result<HandshakeSlot> HandshakeSlab::take() {
  assert_on_progress_thread();
  if (free_.empty()) {
    if (Status added = add_block(); !added) {
      return tl::unexpected(std::move(added).error());
    }
  }
  const FreeSlot slot = free_.back();
  free_.pop_back();
  return HandshakeSlot{slot.bytes, slot.bytes + kHandshakeBytes, slot.lkey, next_serial_++, 1};
}

void HandshakeSlab::give_back(const HandshakeSlot& slot) noexcept {
  assert_on_progress_thread();
  free_.push_back({slot.receive, slot.lkey});  // add_block has made room for every slot
}

Status HandshakeSlab::add_block() {
  Block block;
  block.bytes = std::make_unique<std::array<std::byte, kSlotBytes * kSlotsPerBlock>>();
  // Room for everything first: a slot of a block that is not kept would lead into freed memory.
  blocks_.reserve(blocks_.size() + 1);
  free_.reserve((blocks_.size() + 1) * kSlotsPerBlock);
  if (budget_ != nullptr && !budget_->try_take(RegionUse::kReserve)) {  // not take(): this is the progress thread
    return failure("registering " + std::to_string(block.bytes->size()) +
                   " bytes for handshakes: " + budget_->explain());
  }
  block.region.reset(ibv_reg_mr(pd_, block.bytes->data(), block.bytes->size(), IBV_ACCESS_LOCAL_WRITE));
  if (!block.region) {
    const int error_number = errno;
    if (budget_ != nullptr) {
      budget_->give_back(RegionUse::kReserve);
    }
    return verbs_failure("registering " + std::to_string(block.bytes->size()) + " bytes for handshakes", error_number);
  }
  const Block& kept = blocks_.emplace_back(std::move(block));
  for (std::size_t i = kSlotsPerBlock; i > 0; --i) {
    free_.push_back({kept.bytes->data() + (i - 1) * kSlotBytes, kept.region->lkey});
  }
  return {};
}

}  // namespace fabric::cpc
