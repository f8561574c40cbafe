// SPDX-License-Identifier: BSD-3-Clause
//
// Small messages that go to a peer in one packet: one credit, one request and one completion for all of them. The first few
// between two calls of progress() leave at once, so that whoever waits for an answer waits for nothing else. What comes after
// them is appended to an open packet. It stands among the messages that wait, and leaves when it is full, when another
// message is to go over its queue, with the next completion there, or at the end of progress(). So do messages that have to wait
// for room anyway.
//
// None of its messages is complete before the packet is. So a program that waits for what it has sent, however it does that, calls
// progress(), and the packet leaves: what is held back is never a message that a program may believe sent.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"

namespace fabric {

namespace {

constexpr unsigned kFewParts = 2;
constexpr unsigned kManyParts = 8;

}  // namespace

bool Link::is_burst() noexcept {
  if (burst_epoch_ != path_.epoch()) {
    burst_epoch_ = path_.epoch();
    burst_ = 0;
  }
  return burst_ == alone_ || ++burst_ > alone_;
}

/// Not in a callback: what the upper layer says there may be its last word, with no progress after it (MPI_Comm_disconnect
/// waits in PMIx), and a packet might find no room.
bool Link::in_burst() const noexcept {
  return burst_ == alone_ && burst_epoch_ == path_.epoch() && !path_.is_in_progress();
}

bool Link::join_packet(Fragment& fragment) noexcept {
  const std::size_t size = fragment.segments[0].seg_len;
  if (!path_.coalesces(size) || fragment.kind != PacketKind::kMessage || fragment.user_memory != nullptr) {
    return false;
  }
  const std::size_t needed = RecordHeader::room_for(size);
  if (open_packet_ != nullptr && open_packet_->segments[0].seg_len + needed > path_.packet_size()) {
    close_packet();
  }
  if (open_packet_ == nullptr && !open_packet()) {
    return false;
  }
  std::byte* const at = open_packet_->packet + PacketHeader::kSize + open_packet_->segments[0].seg_len;
  std::memset(at + needed - RecordHeader::kSize, 0, RecordHeader::kSize);  // what is beyond the message
  RecordHeader{static_cast<std::uint16_t>(size), fragment.tag}.write(at);
  std::memcpy(at + RecordHeader::kSize, fragment.packet + PacketHeader::kSize, size);
  open_packet_->segments[0].seg_len += needed;
  fragment.callback_due = true;
  fragment.next = nullptr;
  (open_packet_->parts == nullptr ? open_packet_->parts : last_part_->next) = &fragment;
  last_part_ = &fragment;
  ++parts_;
  ++path_.counters().messages_coalesced;
  path_.counters().bytes_sent += size;
  return true;
}

bool Link::open_packet() noexcept {
  LinkQueue& queue = queues_[path_.coalescing_queue()];
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
  LinkQueue& queue = queues_[path_.coalescing_queue()];
  if (const Room room = queue.room(); room != Room::kYes) {
    ++(room == Room::kNoSlot ? path_.counters().waits_for_slot : path_.counters().waits_for_credit);
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
  if (parts_ <= kFewParts) {
    alone_ = std::min(2 * alone_, kMostAlone);
  } else if (parts_ >= kManyParts) {
    alone_ = kFewestAlone;
  }
  post_packet();
}

void PacketPath::post_later(Link& link) noexcept {
  if (!link.is_to_post_) {
    link.is_to_post_ = is_more_to_do_ = true;
    link.next_to_post_ = first_to_post_;
    first_to_post_ = &link;
  }
}

/// Those that find no room wait for it like other messages, and take more of them.
void PacketPath::post_packets() noexcept {
  while (first_to_post_ != nullptr) {
    Link& link = *first_to_post_;
    first_to_post_ = link.next_to_post_;
    link.is_to_post_ = false;
    link.end_burst();
  }
}

}  // namespace fabric
