// SPDX-License-Identifier: BSD-3-Clause
//
// Small messages that go to a peer in one packet: one credit, one request and one completion for all of them. The first few
// between two calls of progress() leave at once, so that whoever waits for an answer waits for nothing else. What comes after
// them is appended to an open packet. It stands among the messages that wait, and leaves when it is full, when another
// message is to go over its queue, with the next completion there, or with the next call of progress(). So do messages that have
// to wait for room anyway.
//
// What Open MPI calls complete must arrive though its sender makes no progress any more. So messages are complete at once only in a
// packet that is promised: it has room and a credit, and the progress thread posts it if it lies (packet_watch.h). Messages
// in other packets, and those that Open MPI wants to hear of, are complete when the packet is.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "btl_fabric/path/immediate_sends.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"

namespace fabric {

namespace {

constexpr unsigned kFewParts = 2;
constexpr unsigned kManyParts = 8;

}  // namespace

/// Not in a callback: what the upper layer says there may be its last word, with no progress after it (MPI_Comm_disconnect
/// waits in PMIx), and a packet might find no room.
bool Link::in_burst() const noexcept {
  return burst_ >= alone_ && burst_epoch_ == path_.epoch() && !path_.is_in_progress();
}

bool Link::join_packet(Fragment& fragment) noexcept {
  const std::size_t size = fragment.segments[0].seg_len;
  if (!path_.coalesces(size) || fragment.kind != PacketKind::kMessage || fragment.user_memory != nullptr ||
      fragment.detours > 0) {
    return false;
  }
  const std::size_t needed = RecordHeader::room_for(size);
  if (open_packet_ != nullptr && open_packet_->segments[0].seg_len + needed > path_.packet_size()) {
    close_packet();
  }
  if (is_promised_ && !watched_.take()) {
    post_promised();
  }
  if (open_packet_ == nullptr && !open_packet()) {
    return false;
  }
  std::memcpy(add_record(size, needed, fragment.tag), fragment.packet + PacketHeader::kSize, size);
  fragment.callback_due = true;
  fragment.next = nullptr;
  (open_packet_->parts == nullptr ? open_packet_->parts : last_part_->next) = &fragment;
  last_part_ = &fragment;
  if (is_promised_) {
    watched_.grow(needed);
    watched_.give();
  }
  return true;
}

// ---- Packets whose messages are complete as soon as they are in it

bool Link::join_promised(ImmediateMessage message) noexcept {
  const std::size_t needed = RecordHeader::room_for(message.size());
  if (open_packet_ != nullptr && !is_promised_) {
    return false;
  }
  bool is_new = !is_promised_;
  if (is_promised_ && (open_packet_->segments[0].seg_len + needed > path_.packet_size() || !watched_.take())) {
    post_promised();
    is_new = true;
  }
  if (is_new && !open_promised()) {
    return false;
  }
  std::byte* const at = add_record(message.size(), needed, message.tag);
  std::memcpy(at, message.header, message.header_size);
  if (message.payload_size > 0) {
    copy_all(*message.convertor, {at + message.header_size, message.payload_size});
  }
  watched_.grow(needed);
  if (parts_ >= early_) [[unlikely]] {
    early_ = EarlyPackets::next(early_);
    alone_ = kFewestAlone;
    promised_is_posted(path_.early_packets().timed([this]() noexcept { return watched_.post_taken(); }));
    return true;
  }
  watched_.give();
  if (is_new) {
    path_.watch()->opened();
  }
  return true;
}

bool Link::open_promised() noexcept {
  LinkQueue& queue = *coalescing_;
  if (is_xrc_ || path_.watch() == nullptr || path_.is_in_progress() || !is_up() || !queue.waiting.empty() ||
      !make_room(queue)) {
    return false;
  }
  if (!is_watched_ && !path_.watch()->add(watched_)) {
    return false;
  }
  is_watched_ = true;
  if (!open_packet()) {
    return false;
  }
  is_promised_ = true;
  Fragment& fragment = *open_packet_;
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  const PacketHeader header = queue.next_header(PacketKind::kMessages, 0);
  header.write(fragment.packet);
  promised_grant_ = header.grant;
  fragment.number = queue.take_number();
  watched_.open(queue.sends->qp,
                {reinterpret_cast<std::uintptr_t>(fragment.packet), static_cast<std::uint32_t>(PacketHeader::kSize),
                 fragment.lkey},
                queue.take_registered_room(fragment));
  return true;
}

/// Or takes note that it has been posted.
void Link::post_promised() noexcept {
  promised_is_posted(watched_.post());
}

void Link::promised_is_posted(int error) noexcept {
  LinkQueue& queue = *coalescing_;
  Fragment* const fragment = queue.waiting.pop_front();
  assert(fragment == open_packet_);
  open_packet_ = nullptr;
  is_promised_ = false;
  ++path_.counters().packets_coalesced;
  if (error == 0 || is_of_lost_device(*this, error)) [[likely]] {
    ++queue.in_flight;
    return;
  }
  fragment->posted_on = nullptr;
  post_refused(queue, error);
  end_send(upper_, fragment, OPAL_ERR_UNREACH);
}

void Link::take_promise_back() noexcept {
  if (!is_promised_) {
    return;
  }
  LinkQueue& queue = *coalescing_;
  is_promised_ = false;
  if (watched_.close()) {
    (void)queue.waiting.pop_front();
    ++queue.in_flight;
  } else {
    queue.sends->tx.completed(open_packet_->carried, open_packet_);
    open_packet_->posted_on = nullptr;
    --queue.counts->sent;  // it is the newest
    if (!queue.is_shared) {
      queue.credits.return_credit();
      queue.credits.return_grant(promised_grant_);
    }
  }
  open_packet_ = nullptr;
}

// ---- Their beginning and end

bool Link::open_packet() noexcept {
  LinkQueue& queue = *coalescing_;
  Fragment* const fragment = is_up() ? path_.get_send(queue.index) : nullptr;
  if (fragment == nullptr) {
    return false;
  }
  fragment->kind = PacketKind::kMessages;
  fragment->tag = 0;
  fragment->segments[0].seg_len = 0;
  fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  fragment->des_cbfunc = nullptr;
  fragment->callback_due = true;  // of its parts
  parts_ = 0;
  queue.waiting.push_back(fragment);
  open_packet_ = fragment;
  path_.post_later(*this);
  return true;
}

void Link::post_packet() noexcept {
  if (open_packet_ == nullptr) {
    return;
  }
  if (is_promised_) {
    post_promised();
    return;
  }
  LinkQueue& queue = *coalescing_;
  if (const Room room = queue.room(); room != Room::kYes) {
    count_wait(path_.counters(), room, queue.index);
  }
  send_waiting(queue);
}

void Link::close_packet() noexcept {
  post_packet();
  open_packet_ = nullptr;
}

/// What has been sent since the last call of progress() tells how the program sends.
void Link::end_burst() noexcept {
  if (open_packet_ == nullptr) {
    return;
  }
  if (parts_ <= kFewParts && early_ == path_.early_packets().first()) {
    alone_ = std::min(2 * alone_, kMostAlone);
  } else if (parts_ >= kManyParts) {
    alone_ = kFewestAlone;
  }
  post_packet();
}

void PacketPath::post_later(Link& link) noexcept {
  if (!link.is_to_post_) {
    link.is_to_post_ = true;
    link.next_to_post_ = first_to_post_;
    first_to_post_ = &link;
  }
}

/// Those that find no room wait for it like other messages, and take more of them.
void PacketPath::post_packets() noexcept {
  ++depth_;
  while (first_to_post_ != nullptr) {
    Link& link = *first_to_post_;
    first_to_post_ = link.next_to_post_;
    link.is_to_post_ = false;
    link.end_burst();
  }
  --depth_;
}

}  // namespace fabric
