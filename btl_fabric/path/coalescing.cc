// SPDX-License-Identifier: BSD-3-Clause
//
// Small messages that go to a peer in one packet: one credit, one request and one completion for all of them. The first few
// between two calls of progress() leave at once, so that whoever waits for an answer waits for nothing else. What comes after
// them is appended to an open packet. It stands among the messages that wait, and leaves when it is full, when another
// message is to go over its queue, with the next completion there, or at the end of progress().
#include <cassert>
#include <cstring>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"

namespace fabric {

namespace {

constexpr unsigned kAlone = 4;  ///< messages that leave at once

}  // namespace

bool Link::is_burst() noexcept {
  if (burst_epoch_ != path_.epoch()) {
    burst_epoch_ = path_.epoch();
    burst_ = 0;
  }
  return burst_ == kAlone || ++burst_ > kAlone;
}

bool Link::send_with_others(opal_convertor_t* convertor, const void* header, std::size_t header_size,
                            std::size_t payload_size, mca_btl_base_tag_t tag) noexcept {
  const std::size_t size = header_size + payload_size;
  const std::size_t needed = RecordHeader::room_for(size);
  if (open_packet_ != nullptr && open_packet_->segments[0].seg_len + needed > path_.packet_size()) {
    post_packet();
    open_packet_ = nullptr;
  }
  if (open_packet_ == nullptr && !open_packet()) {
    return false;
  }
  std::byte* const at = open_packet_->packet + PacketHeader::kSize + open_packet_->segments[0].seg_len;
  std::memset(at + needed - RecordHeader::kSize, 0, RecordHeader::kSize);  // what is beyond the message
  RecordHeader{static_cast<std::uint16_t>(size), tag}.write(at);
  std::memcpy(at + RecordHeader::kSize, header, header_size);
  if (payload_size > 0) {
    pack_all(*convertor, {at + RecordHeader::kSize + header_size, payload_size});
  }
  open_packet_->segments[0].seg_len += needed;
  ++path_.counters().messages_coalesced;
  path_.counters().bytes_sent += size;
  return true;
}

bool Link::open_packet() noexcept {
  LinkQueue& queue = queues_[path_.coalescing_queue()];
  Fragment* const fragment = is_up() && queue.waiting.empty() ? path_.get_send(queue.index) : nullptr;
  if (fragment == nullptr) {
    return false;
  }
  fragment->kind = PacketKind::kMessages;
  fragment->tag = 0;
  fragment->segments[0].seg_len = 0;
  fragment->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  fragment->des_cbfunc = nullptr;
  fragment->callback_due = false;
  queue.waiting.push_back(fragment);
  open_packet_ = fragment;
  path_.close_later(*this);
  return true;
}

void Link::post_packet() noexcept {
  if (open_packet_ != nullptr) {
    send_waiting(queues_[path_.coalescing_queue()]);
  }
}

void PacketPath::close_later(Link& link) noexcept {
  if (!link.is_to_close_) {
    link.is_to_close_ = is_more_to_do_ = true;
    link.next_to_close_ = first_to_close_;
    first_to_close_ = &link;
  }
}

/// Those that find no room wait for it like other messages.
void PacketPath::close_packets() noexcept {
  while (first_to_close_ != nullptr) {
    Link& link = *first_to_close_;
    first_to_close_ = link.next_to_close_;
    link.is_to_close_ = false;
    link.post_packet();
  }
}

}  // namespace fabric
