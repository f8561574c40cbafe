// SPDX-License-Identifier: BSD-3-Clause
//
// The shortest way of a small message: into the open packet of a burst, or to the device, which copies it. In one piece with its
// caller, since the calls and what they save would be as long as the rest.
#pragma once

#include <array>
#include <cstring>

#include "btl_fabric/base/immediate_message.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"

namespace fabric {

/// As std::memcpy, and with a few instructions for what is as long as a header of ob1's, or a number or two.
inline void copy_few(std::byte* to, const void* from, std::size_t size) noexcept {
  if (size - 8 > 8) [[unlikely]] {
    std::memcpy(to, from, size);
    return;
  }
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, static_cast<const std::byte*>(from) + size - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + size - sizeof last, &last, sizeof last);
}

[[gnu::always_inline]] inline bool Link::is_burst() noexcept {
  if (burst_epoch_ != path_.epoch()) {
    burst_epoch_ = path_.epoch();
    burst_ = 0;
    early_ = path_.early_packets().first();
  }
  return burst_ >= alone_ || ++burst_ > alone_;
}

[[gnu::always_inline]] inline bool Link::send_immediately(const ImmediateMessage& message) noexcept {
  const std::size_t size = message.size();
  if (path_.coalesces(size) && is_burst()) {
    return append(message) || join_promised(message);  // or it goes with others by send()
  }
  if (ring_out_.takes(size)) [[unlikely]] {
    return send_by_ring(message);
  }
  return send_inline(message);
}

/// Into a packet that is open, by far not full, and not the progress thread's just now.
[[gnu::always_inline]] inline bool Link::append(const ImmediateMessage& message) noexcept {
  const std::size_t needed = RecordHeader::room_for(message.size());
  if (!is_promised_ || open_packet_->segments[0].seg_len + needed > path_.packet_size() || parts_ + 1 >= early_ ||
      (message.payload_size > 0 && needs_packing(*message.convertor)) || !watched_.take_open()) [[unlikely]] {
    return false;
  }
  std::byte* const at = add_record(message.size(), needed, message.tag);
  copy_few(at, message.header, message.header_size);
  if (message.payload_size > 0) {
    void* start = nullptr;
    opal_convertor_get_current_pointer(message.convertor, &start);
    copy_few(at + message.header_size, start, message.payload_size);
  }
  watched_.grow(needed);
  watched_.give();
  return true;
}

[[gnu::always_inline]] inline std::byte* Link::add_record(std::size_t size, std::size_t needed,
                                                          mca_btl_base_tag_t tag) noexcept {
  std::byte* const at = open_packet_->packet + PacketHeader::kSize + open_packet_->segments[0].seg_len;
  std::memset(at + needed - RecordHeader::kSize, 0, RecordHeader::kSize);  // what is beyond the message
  RecordHeader{static_cast<std::uint16_t>(size), tag}.write(at);
  open_packet_->segments[0].seg_len += needed;
  ++parts_;
  ++path_.counters().messages_coalesced;
  path_.counters().bytes_sent += size;
  return at + RecordHeader::kSize;
}

/// The headers in one piece, the user's bytes in another.
[[gnu::always_inline]] inline bool Link::send_inline(const ImmediateMessage& message) noexcept {
  const std::size_t size = message.size();
  LinkQueue* chosen = smallest_;
  if (size > path_.smallest_size()) [[unlikely]] {
    const std::size_t index = path_.queue_for(size);
    if (index == path_.receive_queues().count()) {
      return false;
    }
    chosen = &queue(index);
  }
  LinkQueue& queue = *chosen;
  if (!queue.fits_inline(size) || !queue.waiting.empty() || queue.room() != Room::kYes) [[unlikely]] {
    return false;
  }
  alignas(8) std::array<std::byte, kMaxInline> passing;
  std::byte* const place = queue.kept ? queue.kept->place() : nullptr;
  const bool is_kept = place != nullptr;
  std::byte* const packet = is_kept ? place : passing.data();
  copy_few(packet + PacketHeader::kSize, message.header, message.header_size);
  std::size_t length = PacketHeader::kSize + message.header_size;
  std::span<const std::byte> data;
  if (message.payload_size > 0) {
    if (needs_packing(*message.convertor)) [[unlikely]] {
      pack_all(*message.convertor, {packet + length, message.payload_size});
      length += message.payload_size;
    } else {
      void* start = nullptr;
      opal_convertor_get_current_pointer(message.convertor, &start);
      if (is_kept) {
        copy_few(packet + length, start, message.payload_size);
        length += message.payload_size;
      } else {
        data = {static_cast<const std::byte*>(start), message.payload_size};
      }
    }
  }
  if (!queue.is_shared) {
    queue.credits.take_credit();
  }
  queue.next_header(PacketKind::kMessage, message.tag).write(packet);
  const std::uint32_t number = queue.take_number();
  if (is_kept) {
    queue.kept->keep(number, length);
  }
  ++path_.counters().messages_sent_inline;
  path_.counters().bytes_sent += size;
  const int error = queue.post_inline({packet, length}, data);
  if (error != 0) [[unlikely]] {
    post_refused(queue, error);  // the message is lost with the link, which is reported
  }
  return true;
}

}  // namespace fabric
