// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_rest.h"

#include <algorithm>
#include <utility>

#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

bool LinkRest::is_idle() const noexcept {
  return link_.is_up() && link_.is_quiet() && !link_.has_waiting() && link_.open_packet_ == nullptr &&
         link_.replies_.empty() && !link_.owes_ring_left_ && !link_.owes_stay_;
}

bool LinkRest::take_use() noexcept {
  bool was_used = false;
  for (LinkQueue& queue : link_.queues_) {
    was_used = std::exchange(queue.was_used, false) || was_used;
  }
  return was_used;
}

void LinkRest::ask() noexcept {
  assert(is_idle() && !link_.is_xrc_);
  link_.state_ = Link::State::kResting;
  link_.rests_to_say_ = link_.queues_.size();
  link_.say_last_ones();
}

bool LinkRest::hear(LinkQueue& queue) noexcept {
  queue.said_rest = true;
  if (!std::all_of(link_.queues_.begin(), link_.queues_.end(), [](const LinkQueue& one) { return one.said_rest; })) {
    return false;
  }
  for (LinkQueue& one : link_.queues_) {
    one.said_rest = false;  // if we need the link, it may ask again
  }
  return true;
}

bool LinkRest::has_asked() const noexcept {
  return link_.state_ != Link::State::kUp && link_.rests_to_say_ == 0;
}

void LinkRest::decline() noexcept {
  Fragment* const fragment = link_.path_.get_own(link_.queues_.front().index);
  link_.owes_stay_ = fragment == nullptr;
  if (fragment == nullptr) {
    link_.path_.retry_later(link_);
    return;
  }
  (void)link_.send_internal(*fragment, PacketKind::kStay, 0);  // a failure is reported
}

void LinkRest::resume(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept {
  assert(link_.state_ == Link::State::kResting && link_.rests_to_say_ == 0);
  link_.start(messages, requests);
  link_.retry();  // what came meanwhile, and is to be answered
}

}  // namespace fabric
