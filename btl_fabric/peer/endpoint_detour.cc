// SPDX-License-Identifier: BSD-3-Clause
//
// Another way: while the link of an endpoint cannot be made anew, what it has left, and what is sent meanwhile, goes through another
// port to the same peer. An endpoint there has a link that carries, and delivers once, whatever becomes of it. What this one's
// last link has brought is told that way first (DetourHeader), as it is over a new link. After that messages go as messages of the
// other endpoint, reads and writes as pieces of it; atomics that go as messages name the endpoint, since their targets and
// answers are known there. Atomics of the device wait: two devices may not know of each other's. Attempts to make the link anew go
// on, and with the first that succeeds everything goes over it again.
//
// Each telling of counts has a number, whichever way it goes. One that comes late, after a newer one over the endpoint's own link,
// is known by it. What is told by another way is final if the peer had heard before that our last link has broken: else it may still
// take messages from that one, which may even come up there only now. So each telling names the link that was lost, and the newest
// telling of the other side.
#include <array>
#include <vector>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/path/link_healing.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

namespace {

/// The peer is asked again, and other ports are looked for again, after this.
constexpr std::chrono::seconds kPatience{1};

/// Of the numbers of tellings, which wrap.
bool is_older(std::uint32_t number, std::uint32_t than) noexcept {
  return static_cast<std::int32_t>(number - than) < 0;
}

}  // namespace

/// What the broken link has brought is final, and no other has taken its place.
bool Endpoint::may_settle() const noexcept {
  return !is_xrc_ && is_healing() && healing_->has_broken && ending_ == nullptr &&
         (state_ == EndpointState::kConnecting || state_ == EndpointState::kCtsSent ||
          state_ == EndpointState::kCtsAwaited);
}

/// All that has been sent is known to have arrived.
bool Endpoint::has_nothing_in_doubt() const noexcept {
  const Backlog& backlog = healing_->backlog;
  return counts_ != nullptr && counts_->is_agreed && backlog.ring.empty() &&
         std::all_of(backlog.queues.begin(), backlog.queues.end(), [](const auto& packets) { return packets.empty(); });
}

void Endpoint::go_on_detour(std::chrono::steady_clock::time_point now) {
  if (!may_settle()) {
    return;
  }
  Endpoint* const way = owner_.way_beside(*this);
  if (way == nullptr) {
    if (!healing_->told_aside || now - *healing_->told_aside >= kPatience) {
      healing_->told_aside = now;
      owner_.connect_other_ports(*this);
    }
    return;
  }
  healing_->is_settled = healing_->is_settled || has_nothing_in_doubt();
  settle();
  if (!may_settle()) {
    return;  // a callback has made progress
  }
  if (!healing_->is_told_aside || (!healing_->is_settled && now - *healing_->told_aside >= kPatience)) {
    tell_counts_aside(*way);
    healing_->told_aside = now;
  }
  if (healing_->is_settled) {
    carry_aside(*way);
  }
}

/// The peer answers, if we do not know what it has taken.
void Endpoint::tell_counts_aside(Endpoint& way) {
  const std::size_t size = counts_size(counts().size());
  std::vector<std::byte> body(size + CountsAside::kSize);
  write_counts(body.data(), counts(), counts_->tellings + 1);
  CountsAside{counts_->newest_aside, is_healing() ? healing_->lost_qpn : 0}.write(body.data() + size);
  const bool is_settled = is_healing() && healing_->is_settled;
  if (say_aside(way, is_settled ? DetourHeader::What::kCounts : DetourHeader::What::kCountsAndYours, body)) {
    ++counts_->tellings;
    if (is_healing()) {
      healing_->is_told_aside = true;
    }
  }
}

bool Endpoint::hear_counts_aside(std::span<const std::byte> body, bool wants_ours) {
  if (state_ > EndpointState::kConnected) {
    return true;  // nothing is to come any more
  }
  if (counts_ == nullptr && wants_ours) {
    (void)link();  // nothing has ever come by this one
  }
  if (counts_ == nullptr) {
    return true;
  }
  const std::size_t size = counts_size(counts().size());
  if (body.size() != size + CountsAside::kSize) {
    return false;
  }
  const auto number = load_be<std::uint32_t>(body.data() + size - sizeof(std::uint32_t));
  const CountsAside more = CountsAside::read(body.data() + size);
  if (is_older(number, counts_->newest_heard + 1) || is_older(number, counts_->newest_aside + 1)) {
    return true;  // it has told us more since
  }
  // A link that is there has broken at the other end; or it is newer than what is said, and is made once more for nothing. One that
  // is being made only if it is the one that the peer has lost.
  const bool is_being_made =
      state_ == EndpointState::kConnecting || state_ == EndpointState::kCtsSent || state_ == EndpointState::kCtsAwaited;
  const bool peer_has_lost_it =
      is_being_made && link_ && more.lost_qpn != 0 && link_->queues().front().qpn == more.lost_qpn;
  if (peer_has_lost_it || carrier_ != nullptr || state_ == EndpointState::kResuming ||
      state_ == EndpointState::kResting || state_ == EndpointState::kParting || state_ == EndpointState::kClear) {
    apply(EndpointEvent::kLost, {.text = "the peer says that the connection has broken"});
  }
  counts_->newest_aside = number;
  if (is_healing()) {
    const bool is_final = !is_older(more.heard, counts_->first_since_break);
    healing_->number_aside = number;
    healing_->taken_aside.clear();
    for (std::size_t place = 0; is_final && place < counts().size(); ++place) {
      healing_->taken_aside.push_back(load_be<std::uint32_t>(body.data() + place * sizeof(std::uint32_t)));
    }
    if (wants_ours || !is_final) {
      healing_->is_told_aside = false;
    }
    return true;
  }
  owes_counts_aside_ = wants_ours;
  answer_aside();
  return true;
}

/// Nothing of ours is lost, since nothing was under way; but the peer wants to know whether what it has sent has arrived. A newer link
/// that is about to carry has brought nothing.
void Endpoint::answer_aside() {
  const bool is_final = ending_ == nullptr && !is_healing() && carrier_ == nullptr &&
                        (state_ <= EndpointState::kCtsAwaited || state_ == EndpointState::kClear);
  Endpoint* const way = owes_counts_aside_ && is_final ? owner_.way_beside(*this) : nullptr;
  if (way != nullptr) {
    owes_counts_aside_ = false;
    tell_counts_aside(*way);
  }
}

/// What the peer has said so is so: what is left has no numbers from now on.
void Endpoint::settle() {
  if (healing_->taken_aside.empty()) {
    return;
  }
  const std::vector<std::uint32_t> taken = std::move(healing_->taken_aside);
  healing_->taken_aside.clear();
  if (is_older(healing_->number_aside, counts_->newest_heard + 1)) {
    return;
  }
  counts_->newest_heard = healing_->number_aside;
  const EndpointHealing* const same = healing_.get();
  if (!drop_arrived(taken)) {
    give_up_healing("By another port the peer said that it has taken other messages than can be");
    return;
  }
  if (healing_.get() != same || !may_settle()) {
    return;  // a callback has made progress, and something else has happened
  }
  LinkHealing::unnumber(healing_->backlog, counts());
  healing_->is_settled = true;
}

// ---- What the peer's endpoint says to this one by another way

/// The answer goes back by the way that the message has come, if there is a buffer.
bool Endpoint::hear_atomic_aside(Endpoint& way, std::span<const std::byte> body) {
  AtomicMessage message;
  if (!message.read(body.data(), body.size())) {
    return false;
  }
  const AtomicReply reply = owner_.path().execute(message);
  std::array<std::byte, AtomicReply::kSize> answer;
  reply.write(answer.data());
  if (say_aside(way, DetourHeader::What::kAtomicReply, answer)) {
    return true;
  }
  if (is_healing()) {
    healing_->backlog.replies.push_back(reply);
  } else {
    LinkHealing(link()).owe({reply});
    connect_if_wanted();
  }
  return true;
}

bool Endpoint::hear_reply_aside(std::span<const std::byte> body) {
  if (state_ > EndpointState::kConnected) {
    return true;  // whoever waited for it has been told
  }
  AtomicReply reply;
  return (link_ || is_healing()) && reply.read(body.data(), body.size()) && link().rdma().replied(reply);
}

}  // namespace fabric
