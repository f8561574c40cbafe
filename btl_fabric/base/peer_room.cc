// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/peer_room.h"

#include <mutex>

namespace fabric {

namespace {

std::mutex list_mutex;
RoomListing* first = nullptr;

}  // namespace

void RoomListing::list(const ProcessName& peer, const RoomSource& source) noexcept {
  unlist();
  const std::lock_guard guard(list_mutex);
  peer_ = peer;
  source_ = &source;
  before_ = nullptr;
  after_ = first;
  if (first != nullptr) {
    first->before_ = this;
  }
  first = this;
}

void RoomListing::unlist() noexcept {
  if (source_ == nullptr) {  // nobody but its owner writes it
    return;
  }
  const std::lock_guard guard(list_mutex);
  source_ = nullptr;
  (before_ != nullptr ? before_->after_ : first) = after_;
  if (after_ != nullptr) {
    after_->before_ = before_;
  }
}

void RoomListing::add_up(std::uint32_t job, std::span<unsigned long long> by_rank,
                         std::uint64_t (RoomSource::*question)() const noexcept) noexcept {
  const std::lock_guard guard(list_mutex);
  for (const RoomListing* one = first; one != nullptr; one = one->after_) {
    if (one->peer_.job == job && one->peer_.rank < by_rank.size()) {
      by_rank[one->peer_.rank] += (one->source_->*question)();
    }
  }
}

}  // namespace fabric
