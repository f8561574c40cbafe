// SPDX-License-Identifier: BSD-3-Clause
//
// What a link sends.
#include <algorithm>
#include <array>
#include <new>
#include <span>

#include "btl_fabric/path/immediate_sends.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"
#include "btl_fabric/path/shared_send_queue.h"

namespace fabric {

namespace {

/// What btl_send() answers for a fragment whose bytes are out of the upper layer's hands. Where the upper layer wants a
/// callback in any case, it has had it (or gets it); otherwise 1 stands for the callback.
int finished(const Fragment& fragment) noexcept {
  return fragment.callback_due ? OPAL_SUCCESS : 1;
}

}  // namespace

int Link::send(Fragment& fragment) noexcept {
  if (in_burst()) {
    if (join_packet(fragment)) {
      return OPAL_SUCCESS;
    }
    if (!is_up()) [[unlikely]] {
      return OPAL_ERR_UNREACH;  // the packet before it was refused
    }
  }
  return send_over(queue(fragment.queue), fragment);
}

[[gnu::always_inline]] inline int Link::send_over(LinkQueue& queue, Fragment& fragment) noexcept {
  // Atomics that go as messages keep their order.
  if (queue.waiting.empty() && queue.room() == Room::kYes) [[likely]] {
    return post_fragment(queue, fragment);
  }
  if (answers_first_ && fragment.kind == PacketKind::kMessage && queue.room() == Room::kYes) {
    return send_first(queue, fragment);
  }
  return send_later(queue, fragment);
}

/// Before those that wait. A packet that is promised has its number already.
int Link::send_first(LinkQueue& queue, Fragment& fragment) noexcept {
  if (is_promised_ && &queue == coalescing_) {
    post_promised();
    if (!is_up()) {
      return OPAL_ERR_UNREACH;  // it was refused
    }
    if (queue.room() != Room::kYes) {
      return send_later(queue, fragment);
    }
  }
  return post_fragment(queue, fragment);
}

/// Posts a fragment; there must be room.
int Link::post_fragment(LinkQueue& queue, Fragment& fragment) noexcept {
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  queue.next_header(fragment.kind, fragment.tag).write(fragment.packet);
  if (is_counted(fragment.kind)) {
    fragment.number = queue.take_number();
  }
  const bool in_place = fragment.user_memory != nullptr;
  const bool owned = (fragment.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
  const bool wants_callback = (fragment.des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) != 0 || fragment.callback_due;
  Counters& counters = path_.counters();

  if (owned && !wants_callback && !in_place && queue.fits_inline(fragment.segments[0].seg_len)) {
    const std::size_t length = PacketHeader::kSize + fragment.segments[0].seg_len;
    ++counters.messages_sent_inline;
    counters.bytes_sent += fragment.segments[0].seg_len;
    if (queue.kept && is_counted(fragment.kind)) {
      queue.keep_copy(fragment.number, {fragment.packet, length});
    }
    if (const int error = queue.post_inline({fragment.packet, length}); error != 0) [[unlikely]] {
      post_refused(queue, error);
      return OPAL_ERR_UNREACH;
    }
    put_back(&fragment);
    return 1;
  }
  // If the bytes are in our buffer, an upper layer that left the descriptor to us and asked for no callback is done
  // now. If it waits for a buffer, it is to hear of this one.
  fragment.callback_due = wants_callback || !owned || in_place || path_.is_short_of_buffers();
  const int result = finished(fragment);
  if (fragment.kind == PacketKind::kMessages) {
    ++counters.packets_coalesced;
  } else {
    ++(in_place ? counters.messages_sent_in_place : counters.messages_sent_copied);
    counters.bytes_sent += fragment.segments[0].seg_len + (in_place ? fragment.segments[1].seg_len : 0);
  }
  if (const int error = queue.post_registered(fragment); error != 0) [[unlikely]] {
    post_refused(queue, error);
    return OPAL_ERR_UNREACH;
  }
  return result;
}

/// There is room, or there was some to borrow.
bool Link::make_room(LinkQueue& queue) noexcept {
  while (!queue.sends->tx.has_room() && path_.lend(*queue.sends)) {
  }
  const Room room = queue.room();
  if (room == Room::kNoCredit) {
    queue.notes |= PacketHeader::kShortOfCredits;
  }
  return room == Room::kYes;
}

/// There is no room, or something waits.
int Link::send_later(LinkQueue& queue, Fragment& fragment) noexcept {
  if (open_packet_ != nullptr && &queue == coalescing_) {
    post_packet();  // which may have waited for nothing but more messages
    if (!is_up()) {
      return OPAL_ERR_UNREACH;
    }
    if (queue.waiting.empty() && queue.room() == Room::kYes) {
      return post_fragment(queue, fragment);
    }
  }
  if (queue.waiting.empty() && make_room(queue)) {
    return post_fragment(queue, fragment);
  }
  if (join_packet(fragment)) {
    return OPAL_SUCCESS;
  }
  if (&queue == coalescing_) {
    open_packet_ = nullptr;  // only the last one that waits takes more
  }
  count_wait(path_.counters(), queue.room(), queue.index);
  queue.waiting.push_back(&fragment);
  if (SendShare* share = queue.share; share != nullptr) {
    share->sends.enqueue(queue);
  }
  fragment.callback_due = true;
  return OPAL_SUCCESS;
}

bool Link::send_internal(Fragment& fragment, PacketKind kind, std::size_t size) noexcept {
  fragment.kind = kind;
  fragment.tag = 0;
  fragment.segments[0].seg_len = size;
  fragment.des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  fragment.des_cbfunc = nullptr;
  fragment.callback_due = false;
  int result = OPAL_ERR_UNREACH;
  if (is_up()) [[likely]] {
    result = send(fragment);
  } else if (state_ == State::kResuming && kind == PacketKind::kCounts) {
    result = send_over(queue(fragment.queue), fragment);
  } else if (state_ == State::kOpening) {
    ++path_.counters().waits_for_connection;
    queue(fragment.queue).waiting.push_back(&fragment);
    path_.events().connection_wanted(*this);
    return true;
  }
  if (result < 0) {
    put_back(&fragment);
  }
  return result >= 0;
}

void Link::send_one(LinkQueue& queue) noexcept {
  Fragment* fragment = queue.waiting.pop_front();
  if (fragment == open_packet_) {
    open_packet_ = nullptr;
  }
  if (post_fragment(queue, *fragment) < 0) [[unlikely]] {
    end_send(upper_, fragment, OPAL_ERR_UNREACH);
  }
}

void Link::send_waiting(LinkQueue& queue) noexcept {
  if (queue.share != nullptr) {
    if (!queue.waiting.empty() && may_post()) {
      queue.share->sends.enqueue(queue);
      queue.share->sends.serve();
    }
    return;
  }
  if (rdma_.has_held()) {
    rdma_.tell_held();
  }
  if (is_promised_ && &queue == coalescing_) {
    post_promised();
  }
  while (!queue.waiting.empty() && may_post() && make_room(queue)) {
    send_one(queue);
  }
  if (!queue.is_shared && queue.credits.explicit_due()) {
    send_credits(queue);
  }
}

/// Cold: only when messages go one way.
[[gnu::cold]] void Link::send_credits(LinkQueue& queue) noexcept {
  while (may_post() && queue.sends->has_room() && queue.credits.explicit_due()) {
    queue.credits.take_explicit();
    if (!post_credits(queue)) {
      queue.credits.return_explicit();
      path_.retry_later(*this);
      return;
    }
    ++path_.counters().credit_messages;
  }
}

/// Posts one explicit credit message. False if a device without inline data has no buffer for it.
bool Link::post_credits(LinkQueue& queue) noexcept {
  return post_own(queue, PacketKind::kCredits, {});
}

bool Link::post_own(LinkQueue& queue, PacketKind kind, std::span<const std::byte> body) noexcept {
  const std::size_t length = PacketHeader::kSize + body.size();
  std::array<std::byte, PacketHeader::kSize + kMostOwn> passing;
  Fragment* fragment = nullptr;
  if (!queue.fits_inline(body.size())) {
    fragment = path_.get_own(queue.index);
    if (fragment == nullptr) {
      return false;
    }
  }
  std::byte* const packet = fragment != nullptr ? fragment->packet : passing.data();
  queue.next_header(kind, 0).write(packet);
  std::copy(body.begin(), body.end(), packet + PacketHeader::kSize);
  int error = 0;
  if (fragment == nullptr) {
    error = queue.post_inline({packet, length});
  } else {
    fragment->kind = kind;
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    fragment->callback_due = false;
    fragment->segments[0].seg_len = body.size();
    error = queue.post_registered(*fragment);
    if (error != 0) {
      put_back(fragment);
    }
  }
  if (error != 0) {
    post_refused(queue, error);
  }
  return true;
}

// ---- Goodbye

[[gnu::cold]] void Link::say_goodbye() noexcept {
  assert(is_up() || state_ == State::kResting);
  if (is_up()) {
    post_packet();
    if (!is_up()) {
      return;  // that has failed, and PathEvents has heard of it
    }
  }
  state_ = State::kLeaving;
  rests_to_say_ = 0;
  leave_wait_lists();
  end_waiting();
  goodbyes_out_ = goodbyes_to_say_ = queues_.size();
  say_last_ones();
}

[[gnu::cold]] Fragment* Link::last_message(PacketKind kind) noexcept {
  Fragment* const fragment = path_.get_own(queues_.front().index);
  if (fragment == nullptr) {
    return nullptr;
  }
  fragment->kind = kind;
  fragment->tag = 0;
  fragment->segments[0].seg_len = 0;
  if (is_xrc_) {
    store_be(fragment->packet + PacketHeader::kSize, outgoing_incarnation_);
    fragment->segments[0].seg_len = sizeof outgoing_incarnation_;
  }
  fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
  fragment->des_cbfunc = last_one_sent;
  fragment->des_cbdata = this;
  fragment->callback_due = true;
  return fragment;
}

[[gnu::cold]] void Link::say_last_ones() noexcept {
  const bool leaves = state_ == State::kLeaving;
  if (!leaves && state_ != State::kResting) {
    return;
  }
  for (std::size_t& left = leaves ? goodbyes_to_say_ : rests_to_say_; left > 0; --left) {
    LinkQueue& queue = queues_[queues_.size() - left];
    Fragment* const fragment = last_message(leaves ? PacketKind::kGoodbye : PacketKind::kRest);
    if (fragment == nullptr) {
      path_.retry_later(*this);
      return;
    }
    if (send_over(queue, *fragment) == OPAL_ERR_UNREACH) {
      put_back(fragment);  // the link has failed, and PathEvents has heard of it
      return;
    }
  }
}

[[gnu::cold]] bool Link::hear_goodbye(LinkQueue& queue, const std::byte* packet, std::size_t length) noexcept {
  if (is_xrc_ && (length != PacketHeader::kSize + sizeof incoming_incarnation_ ||
                  load_be<std::uint32_t>(packet + PacketHeader::kSize) != incoming_incarnation_)) {
    return false;  // of a link before this one
  }
  queue.said_goodbye = true;
  return std::all_of(queues_.begin(), queues_.end(), [](const LinkQueue& one) { return one.said_goodbye; });
}

[[gnu::cold]] void Link::last_one_sent(mca_btl_base_module_t* /*module*/, mca_btl_base_endpoint_t* /*endpoint*/,
                                       mca_btl_base_descriptor_t* fragment, int /*status*/) {
  if (static_cast<Fragment*>(fragment)->kind == PacketKind::kGoodbye) {
    static_cast<Link*>(fragment->des_cbdata)->goodbye_ended();
  }
}

[[gnu::cold]] void Link::goodbye_ended() noexcept {
  if (goodbyes_out_ > 0 && --goodbyes_out_ == 0) {
    path_.events().goodbye_done(*this);
  }
}

[[gnu::cold]] void Link::post_refused(LinkQueue& queue, int error_number) noexcept {
  path_.events().link_failed(
      *this, {.kind = LinkFailure::Kind::kRefusedPost, .qpn = queue.sends->qp->qp_num, .error_number = error_number});
}

void Link::reply(const AtomicReply& reply) noexcept {
  if (state_ != State::kBroken && replies_.empty() && send_reply(reply)) {
    return;
  }
  try {
    replies_.push_back(reply);
  } catch (const std::bad_alloc&) {
    path_.events().link_failed(*this, {.kind = LinkFailure::Kind::kNoMemory});
    return;
  }
  if (state_ != State::kBroken) {
    path_.retry_later(*this);
  }
}

/// False if there is no buffer now.
bool Link::send_reply(const AtomicReply& reply) noexcept {
  if (state_ == State::kResting || state_ == State::kResuming) {
    return false;  // the peer waits for it, and needs the link
  }
  Fragment* fragment = path_.get_own(path_.queue_for(AtomicReply::kSize));
  if (fragment == nullptr) {
    return false;
  }
  reply.write(fragment->packet + PacketHeader::kSize);
  (void)send_internal(*fragment, PacketKind::kAtomicReply, AtomicReply::kSize);  // a failure is reported
  return true;
}

}  // namespace fabric
