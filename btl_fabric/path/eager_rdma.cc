// SPDX-License-Identifier: BSD-3-Clause
//
// Eager RDMA: the peers that talk most write their small messages into rings of ours (eager_ring.h), and we do for theirs. The
// receiver offers a ring when enough small messages have come, if it has one left, or takes one back for it from a peer that
// talks less. Rings are in memory that the device writes a message's last byte to last (PathSettings::eager_rdma).
//
// A message in a ring may be seen before one that was sent earlier over a queue, or after one that was sent later. Open MPI's
// upper layers number theirs. Of the component's own, only the last ones of a link must come last (goodbye, kRingLeft): they come
// over the queue pair that the ring is written through, so what was written before is there, and is taken first.
#include <array>
#include <cassert>
#include <cstring>

#include "btl_fabric/base/ring_message.h"
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

LinkQueue& Link::ring_queue() noexcept {
  return *smallest_;
}

// ---- Sending

bool Link::send_by_ring(ImmediateMessage message) noexcept {
  if (!ring_out_.is_open()) {
    return send_inline_shared(message);
  }
  LinkQueue& queue = ring_queue();
  if (!queue.waiting.empty() || !queue.sends->has_room()) {
    return false;
  }
  const std::size_t size = message.size();
  const std::size_t room = RingTrailer::room_for(size);
  alignas(8) std::array<std::byte, kMaxInline> passing;
  std::byte* const place = queue.kept ? queue.kept->place() : nullptr;
  std::byte* const packet = place != nullptr ? place : passing.data();
  if (room > size) {
    std::memset(packet + room - 8, 0, 8);
  }
  std::memcpy(packet, message.header, message.header_size);
  if (message.payload_size > 0) {
    copy_all(*message.convertor, {packet + message.header_size, message.payload_size});
  }
  const RingSender::Slot slot = ring_out_.take();
  RingTrailer{queue.next_header(PacketKind::kMessage, message.tag), static_cast<std::uint16_t>(size), slot.lap}.write(
      packet + room);
  Counters& counters = path_.counters();
  ++counters.messages_sent_inline;
  ++counters.messages_by_eager_rdma;
  counters.bytes_sent += size;
  const std::size_t length = room + RingTrailer::kSize;
  const std::uint32_t number = ring_counts_->sent++;
  if (place != nullptr) {
    queue.kept->keep(number, length, true);
  }
  if (const int error = queue.post_inline_write({packet, length}, slot.end - length, ring_out_.rkey()); error != 0)
      [[unlikely]] {
    post_refused(queue, error);  // the message is lost with the link, which is reported
  }
  return true;
}

/// The peer has a ring for us, or wants it back.
bool Link::take_offer(const std::byte* packet, std::size_t length) noexcept {
  RingOffer offer;
  if (!offer.read(packet, length) || is_xrc_ || ring_out_.is_open() == (offer.slots > 0)) {
    return false;
  }
  if (offer.slots > 0) {
    ring_out_.open(offer, path_.settings().max_inline);
    return true;
  }
  ring_out_.close();
  leave_ring();
  return true;
}

/// Tells the peer that nothing more is written to its ring.
void Link::leave_ring() noexcept {
  if (state_ == State::kResting) {
    owes_ring_left_ = true;
    return;
  }
  Fragment* const fragment = path_.get_own(ring_queue().index);
  owes_ring_left_ = fragment == nullptr;
  if (fragment == nullptr) {
    path_.retry_later(*this);
    return;
  }
  (void)send_internal(*fragment, PacketKind::kRingLeft, 0);  // a failure is reported
}

// ---- Receiving

/// As many small messages have come as are asked for. Without memory or a buffer it is tried again after as many more.
void Link::think_of_ring() noexcept {
  LinkQueue& queue = ring_queue();
  queue.until_ring = path_.settings().eager_rdma_threshold;
  const std::uint64_t now = path_.counters().messages_received;
  const std::uint64_t took = now - thought_of_ring_;
  thought_of_ring_ = now;
  if (is_xrc_ || ring_in_.is_open() || !is_up() || !path_.may_have_rings(queue.sends->qp)) {
    return;
  }
  std::byte* const memory = path_.rings().get();
  if (memory == nullptr) {
    path_.take_back_a_ring(took);
    return;
  }
  const RingSizes& sizes = path_.rings().sizes();
  ring_in_.open(memory, sizes.slots, sizes.slot_size);
  ring_in_.looked_at = now;
  if (!offer_ring({reinterpret_cast<std::uintptr_t>(memory), path_.rings().rkey(),
                   static_cast<std::uint16_t>(sizes.slots), static_cast<std::uint16_t>(sizes.slot_size)})) {
    path_.rings().put(ring_in_.close());
    return;
  }
  ++path_.counters().eager_rdma_rings;
  path_.add_ring(*this);
}

bool Link::offer_ring(const RingOffer& offer) noexcept {
  Fragment* const fragment = path_.get_own(ring_queue().index);
  if (fragment == nullptr) {
    return false;
  }
  offer.write(fragment->packet + PacketHeader::kSize);
  return send_internal(*fragment, PacketKind::kRing, RingOffer::kSize);
}

int Link::take_from_ring() noexcept {
  LinkQueue& queue = ring_queue();
  int total = 0;
  ring_in_.begin_reading();
  for (std::uint32_t most = ring_in_.slots(); most > 0 && ring_in_.has_arrived(); --most) {
    std::byte* const trailer = ring_in_.take();
    ++total;
    RingTrailer read;
    if (!read.read(trailer, ring_in_.slot_size()) || !queue.accept_from_ring(read.header) ||
        !take_notes(queue, read.header)) [[unlikely]] {
      path_.bad_packet(queue, {trailer, RingTrailer::kSize});
      break;
    }
    ++ring_counts_->taken;
    path_.deliver_from_ring(queue, {trailer - RingTrailer::room_for(read.size), read.size}, read.header.tag);
  }
  queue.notes = static_cast<std::uint16_t>(queue.notes + ring_in_.end_reading());
  if (!queue.waiting.empty()) {
    send_waiting(queue);
  }
  give_ring_back();
  return total;
}

/// The peer has left the ring. What it has written before is there.
bool Link::ring_left() noexcept {
  if (!ring_in_.is_withdrawn || ring_in_.is_left) {
    return false;
  }
  ring_in_.is_left = true;
  (void)take_from_ring();
  return true;
}

/// Unless a message in it is being read.
void Link::give_ring_back() noexcept {
  if (ring_in_.is_left && !ring_in_.is_read()) {
    ring_queue().notes &= PacketHeader::kShortOfCredits;
    path_.remove_ring(*this);
    path_.rings().put(ring_in_.close());
  }
}

// ---- Who has rings

bool PacketPath::may_have_rings(ibv_qp* queue_pair) noexcept {
  if (eager_rdma_ == EagerRdma::kWhereInOrder) {
    eager_rdma_ = ibv_query_qp_data_in_order(queue_pair, IBV_WR_RDMA_WRITE, 0) == 1 ? EagerRdma::kOn : EagerRdma::kOff;
  }
  return eager_rdma_ == EagerRdma::kOn;
}

void PacketPath::add_ring(Link& link) noexcept {
  ringed_.push_back(&link);
}

void PacketPath::remove_ring(const Link& link) noexcept {
  std::erase(ringed_, &link);
}

/// A peer without a ring has sent so many messages that it might have one (eager_rdma_threshold), while `took` came from all.
/// Takes back the ring of one that sends less than half as many: the peers with rings are the ones that talk most, and two that
/// talk alike do not take the ring from each other in turn.
void PacketPath::take_back_a_ring(std::uint64_t took) noexcept {
  const std::uint64_t now = counters().messages_received;
  for (Link* link : ringed_) {
    RingReceiver& ring = link->ring_in_;
    const std::uint64_t seen = now - ring.looked_at;
    if (seen < took || ring.is_withdrawn) {
      continue;
    }
    const std::uint64_t used = ring.taken() - ring.taken_then;
    ring.taken_then = ring.taken();
    ring.looked_at = now;
    if (2 * used * took < std::uint64_t{settings_.eager_rdma_threshold} * seen && link->is_up() &&
        link->offer_ring({})) {
      ring.is_withdrawn = true;
      return;
    }
  }
}

/// One that a callback removes is not there any more; the next one has its place, and is looked at the next time.
int PacketPath::poll_rings() noexcept {
  int total = 0;
  ++depth_;
  for (std::size_t i = 0; i < ringed_.size(); ++i) {
    Link& link = *ringed_[i];
    if (link.ring_in_.has_arrived()) {
      total += link.take_from_ring();
    }
  }
  --depth_;
  return total;
}

}  // namespace fabric
