// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path of an endpoint.
#include <array>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "btl_fabric/peer/endpoint.h"

namespace fabric {

namespace {

/// The most that sendi packs on the stack; the max_inline_data parameter allows no more.
constexpr std::size_t kMaxInline = 1024;

/// What btl_send() answers for a fragment whose bytes are out of the upper layer's hands. Where the upper layer wants a
/// callback in any case, it has had it (or gets it); otherwise 1 stands for the callback.
int finished(const Fragment& fragment) noexcept {
  return fragment.callback_due ? OPAL_SUCCESS : 1;
}

}  // namespace

int Endpoint::send(Fragment& fragment) noexcept {
  EndpointQueue& queue = queues_[fragment.queue];
  if (state_ == State::kConnected && queue.waiting.empty() && queue.room() == Room::kYes) [[likely]] {
    return post_fragment(queue, fragment);
  }
  return send_later(fragment);
}

/// Posts a fragment; there must be room.
int Endpoint::post_fragment(EndpointQueue& queue, Fragment& fragment) noexcept {
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  queue.next_header(fragment.kind, fragment.tag).write(fragment.packet);
  const bool in_place = fragment.user_memory != nullptr;
  const bool owned = (fragment.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
  const bool wants_callback = (fragment.des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) != 0 || fragment.callback_due;

  if (owned && !wants_callback && !in_place && queue.fits_inline(fragment.segments[0].seg_len)) {
    const auto length = static_cast<std::uint32_t>(PacketHeader::kSize + fragment.segments[0].seg_len);
    ++module_.counters().messages_sent_inline;
    module_.counters().bytes_sent += fragment.segments[0].seg_len;
    if (!queue.post_inline(fragment.packet, length)) [[unlikely]] {
      module_.post_failed(*this, queue);
      return OPAL_ERR_UNREACH;
    }
    module_.put_back(&fragment);
    return 1;
  }
  // If the bytes are in our buffer, an upper layer that left the descriptor to us and asked for no callback is done
  // now.
  fragment.callback_due = wants_callback || !owned || in_place;
  const int result = finished(fragment);
  ++(in_place ? module_.counters().messages_sent_in_place : module_.counters().messages_sent_copied);
  module_.counters().bytes_sent += fragment.segments[0].seg_len + (in_place ? fragment.segments[1].seg_len : 0);
  if (!queue.post_registered(fragment)) [[unlikely]] {
    module_.post_failed(*this, queue);
    return OPAL_ERR_UNREACH;
  }
  return result;
}

int Endpoint::send_later(Fragment& fragment) noexcept {
  switch (state_) {
    case State::kIdle:
      ++module_.counters().waits_for_connection;
      waiting_.push_back(&fragment);
      want_connection();
      break;
    case State::kConnecting:
      ++module_.counters().waits_for_connection;
      waiting_.push_back(&fragment);
      break;
    case State::kConnected:
      ++(queues_[fragment.queue].room() == Room::kNoSlot ? module_.counters().waits_for_slot
                                                         : module_.counters().waits_for_credit);
      queues_[fragment.queue].waiting.push_back(&fragment);
      if (SendShare* share = queues_[fragment.queue].share; share != nullptr) {
        share->sends.line_up(queues_[fragment.queue]);
      }
      break;
    case State::kSelf:  // btl/self carries messages to ourselves
      return OPAL_ERR_UNREACH;
    case State::kPeerLeft:
      module_.connection_failed(*this, "the peer has closed the connection, and there is a message for it");
      return OPAL_ERR_UNREACH;
    case State::kFailed:
    case State::kClosing:
      return OPAL_ERR_UNREACH;
  }
  fragment.callback_due = true;
  return OPAL_SUCCESS;
}

bool Endpoint::send_immediately(opal_convertor_t* convertor, const void* header, std::size_t header_size,
                                std::size_t payload_size, mca_btl_base_tag_t tag) noexcept {
  if (state_ != State::kConnected) {
    return false;
  }
  const std::size_t size = header_size + payload_size;
  const std::size_t index = module_.queue_for(size);
  if (index == queues_.size()) {
    return false;
  }
  EndpointQueue& queue = queues_[index];
  if (!queue.fits_inline(size) || !queue.waiting.empty() || queue.room() != Room::kYes) {
    return false;
  }
  alignas(8) std::array<std::byte, kMaxInline> packet;
  std::memcpy(packet.data() + PacketHeader::kSize, header, header_size);
  if (payload_size > 0) {
    iovec data{packet.data() + PacketHeader::kSize + header_size, payload_size};
    std::uint32_t count = 1;
    std::size_t packed = payload_size;
    opal_convertor_pack(convertor, &data, &count, &packed);
    assert(packed == payload_size);
  }
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  queue.next_header(PacketKind::kMessage, tag).write(packet.data());
  ++module_.counters().messages_sent_inline;
  module_.counters().bytes_sent += size;
  if (!queue.post_inline(packet.data(), static_cast<std::uint32_t>(PacketHeader::kSize + size))) [[unlikely]] {
    module_.post_failed(*this, queue);  // the message is lost with the connection, which is reported
  }
  return true;
}

bool Endpoint::send_internal(Fragment& fragment, PacketKind kind, std::size_t size) noexcept {
  fragment.kind = kind;
  fragment.tag = 0;
  fragment.endpoint = this;
  fragment.segments[0].seg_len = size;
  fragment.des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  fragment.des_cbfunc = nullptr;
  fragment.callback_due = false;
  const int result = send(fragment);
  if (result < 0) {
    module_.put_back(&fragment);
  }
  return result >= 0;
}

void Endpoint::send_one(EndpointQueue& queue) noexcept {
  Fragment* fragment = queue.waiting.pop_front();
  if (post_fragment(queue, *fragment) < 0) [[unlikely]] {
    module_.send_ended(fragment, OPAL_ERR_UNREACH);
  }
}

void Endpoint::send_waiting(EndpointQueue& queue) noexcept {
  if (queue.share != nullptr) {
    if (!queue.waiting.empty()) {
      queue.share->sends.line_up(queue);
      queue.share->sends.serve();
    }
    return;
  }
  while (!queue.waiting.empty() && state_ == State::kConnected && queue.room() == Room::kYes) {
    send_one(queue);
  }
  if (!queue.is_shared && queue.credits.explicit_due()) {
    send_credits(queue);
  }
}

/// Cold: only when messages go one way.
[[gnu::cold]] void Endpoint::send_credits(EndpointQueue& queue) noexcept {
  while (state_ == State::kConnected && queue.sends->has_room() && queue.credits.explicit_due()) {
    queue.credits.take_explicit();
    ++module_.counters().credit_messages;
    if (!post_credits(queue)) {
      queue.credits.return_explicit();  // no buffer: the next completion tries again
      return;
    }
  }
}

/// Posts one explicit credit message. False if a device without inline data has no buffer for it now.
bool Endpoint::post_credits(EndpointQueue& queue) noexcept {
  bool posted = false;
  if (queue.fits_inline(0)) {
    std::array<std::byte, PacketHeader::kSize> packet;
    queue.next_header(PacketKind::kCredits, 0).write(packet.data());
    posted = queue.post_inline(packet.data(), packet.size());
  } else {
    Fragment* fragment = module_.get_send(queue.index);
    if (fragment == nullptr) {
      return false;
    }
    fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    fragment->callback_due = false;
    fragment->endpoint = this;
    fragment->segments[0].seg_len = 0;
    queue.next_header(PacketKind::kCredits, 0).write(fragment->packet);
    posted = queue.post_registered(*fragment);
  }
  if (!posted) {
    module_.post_failed(*this, queue);
  }
  return true;
}

bool Endpoint::accept_grant(EndpointQueue& queue, const PacketHeader& header) noexcept {
  if (queue.is_shared) {
    return header.kind != PacketKind::kCredits && header.grant == CreditGrant{};
  }
  return queue.credits.receive(header.grant, header.kind == PacketKind::kCredits);
}

void Endpoint::receive_done(EndpointQueue& queue, Fragment* fragment) noexcept {
  queue.receives.give_back(fragment);
  refill(queue);
  if (!queue.waiting.empty() || queue.credits.explicit_due()) {
    send_waiting(queue);
  }
}

void Endpoint::refill(EndpointQueue& queue) noexcept {
  const std::uint32_t count = queue.credits.receives_to_post();
  if (count == 0 || state_ == State::kFailed || state_ == State::kClosing || state_ == State::kPeerLeft) {
    return;
  }
  const std::uint32_t posted = queue.receives.fill(count, &queue, [&queue](ibv_recv_wr* first, ibv_recv_wr** refused) {
    return ibv_post_recv(queue.qp, first, refused);
  });
  queue.credits.posted(posted);
  if (posted < count) {
    module_.note_short_of_buffers();
  }
}

void Endpoint::refill_all() noexcept {
  for (EndpointQueue& queue : queues_) {
    if (queue.qp != nullptr && !queue.is_shared) {
      refill(queue);
      send_waiting(queue);
    }
  }
}

}  // namespace fabric
