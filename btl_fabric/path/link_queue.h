// SPDX-License-Identifier: BSD-3-Clause
//
// One queue of a link: what every packet touches. What is done with it is in link.h, receives in receive_buffers.h, the
// room of the queue pair in send_queue.h.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/path/kept_packets.h"
#include "btl_fabric/path/receive_buffers.h"
#include "btl_fabric/path/send_queue.h"
#include "common/accounting/completion_queue_set.h"
#include "common/accounting/credit_window.h"
#include "common/accounting/receive_queues.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric {

class Link;
struct SendShare;

/// What the wr_id of a request points to, told by its lowest bits (everything pointed to is aligned to 8 bytes).
enum class SendTag : std::uint64_t {
  kFragment = 0,                    ///< a Fragment: its room, and whatever waits for its completion
  kBatch = 1,                       ///< an LinkQueue: the oldest batch of entries without a fragment is done
  kDrain = 2,                       ///< an LinkQueue: everything ever posted is done
  kCts = 3,                         ///< an LinkQueue: its CTS is out
  kRdma = 5,                        ///< an RdmaRequest: it is done
  kRdmaPart = 6,                    ///< an RdmaRequest: a part has failed, and the rest will
  kSharedBatch = 7,                 ///< a SendShare: the same as kBatch, of X queues
  kHandshake = cpc::kHandshakeTag,  ///< no pointer: the receive of the peer's CTS, HandshakeSlot::serial
};
inline constexpr std::uint64_t kSendTagMask = 7;
static_assert(kSendTagMask == (1U << cpc::kHandshakeTagBits) - 1);
static_assert(cpc::kHandshakeBytes == PacketHeader::kSize);

/// The most that is packed on the stack to be copied by the device; the max_inline_data parameter allows no more.
inline constexpr std::size_t kMaxInline = 1024;

/// Verbs did not take a request with this error, which says that the device is gone; that has been told.
[[nodiscard]] bool is_of_lost_device(Link& link, int error_number) noexcept;

/// Why a message cannot be posted now.
enum class Room { kYes, kNoCredit, kNoSlot };

/// A message waits, for one of these, on a queue of this index.
inline void count_wait(Counters& sums, Room room, std::uint8_t queue) noexcept {
  QueueWaits& of_queue = sums.tally.queues[queue];
  ++(room == Room::kNoSlot ? sums.waits_for_slot : sums.waits_for_credit);
  ++(room == Room::kNoSlot ? of_queue.for_slot : of_queue.for_credit);
}

/// Belongs to whoever holds the context's lock.
struct LinkQueue {
  LinkQueue(Link& owner, std::uint8_t queue_index, const QueueSpec& spec, FragmentPool& receive_pool,
            std::uint32_t inline_limit, const QueueSpace& send_space, const DeviceCosts& costs)
      : link(owner),
        index(queue_index),
        is_shared(spec.kind != QueueKind::kPerPeer),
        max_inline(inline_limit),
        batch_id(tagged(this, SendTag::kBatch)),
        credits(is_shared ? QueueSpec{} : spec),
        receives(receive_pool, QueueSpace::for_receives(is_shared ? 0 : spec.receive_depth(), costs)),
        own_sends(send_space) {
    request_.sg_list = pieces_;
    request_.opcode = IBV_WR_SEND;
  }
  LinkQueue(const LinkQueue&) = delete;
  LinkQueue& operator=(const LinkQueue&) = delete;

  // What every message touches comes first.
  Link& link;
  SendQueue* sends = &own_sends;  ///< what messages go through
  FragmentQueue waiting;          ///< for a credit or a slot, in order
  const std::uint8_t index;       ///< in receive_queues
  const bool is_shared;
  const std::uint32_t max_inline;  ///< bytes
  std::uint64_t batch_id;          ///< of inline messages
  CreditWindow credits;            ///< of a P queue; unused on a shared one
  ReceiveBuffers receives;         ///< of a P queue
  SendQueue own_sends;             ///< of a P or S queue; one without room for an X queue
  /// PacketHeader::notes of the next message: slots of the peer's ring to us that the peer may write again, and whether a message
  /// has waited for a credit.
  std::uint16_t notes = 0;
  /// Of the queue for the smallest messages: those that are to come until it is thought of giving the peer a ring (0: never).
  std::uint32_t until_ring = 0;
  PacketCounts* counts = &own_counts;  ///< the endpoint's, for all its links
  KeptPackets* kept = nullptr;         ///< null: the link is not made anew if it breaks
  std::uint32_t in_flight = 0;         ///< fragments posted whose completions are to come
  std::uint32_t qpn = 0;               ///< of `qp`, which it outlives; 0: none
  ibv_qp* qp = nullptr;                ///< the connection owns it; an X queue has none of its own
  SendShare* share = nullptr;          ///< of an X queue, when connected
  LinkQueue* next_enqueued = nullptr;
  bool is_enqueued = false;               ///< in the wait list of the shared send queue
  PacketCounts own_counts;                ///< of a link without an endpoint
  std::unique_ptr<KeptPackets> own_kept;  ///< of a P or S queue
  std::uint64_t keeper = 0;   ///< of an X queue: whose those are that it has put to the others, SendShare::keeper()
  FragmentQueue unfinished;   ///< of a link that has broken: posted, and perhaps not arrived; in order
  bool said_goodbye = false;  ///< the peer has: it sends nothing more over this queue
  bool said_rest = false;     ///< the peer has: it sends nothing more until we answer
  bool was_used = false;      ///< since somebody last looked
  bool drained = false;       ///< every send completion is in: the marker's was the last
  bool may_grow = true;       ///< there was memory for the receives that a P queue has more than at first
  CompletionQueueRoom later_room;  ///< for the receives that a P queue has more than at first

  [[nodiscard]] Room room() const noexcept {
    if (!sends->has_room()) {
      return Room::kNoSlot;
    }
    return is_shared || credits.sendable() > 0 ? Room::kYes : Room::kNoCredit;
  }

  [[nodiscard]] bool fits_inline(std::size_t message_bytes) const noexcept {
    return PacketHeader::kSize + message_bytes <= max_inline;
  }

  /// Of an X queue: the peer's shared receive queue. Only an XRC queue pair looks at it.
  void set_remote_srqn(std::uint32_t number) noexcept { request_.qp_type.xrc.remote_srqn = number; }
  [[nodiscard]] std::uint32_t remote_srqn() const noexcept { return request_.qp_type.xrc.remote_srqn; }

  /// Posts a packet that the device copies at once, `packet` and then `data`: both may be reused when this returns. There
  /// must be room. 0, or what verbs returned when it refused.
  [[nodiscard]] int post_inline(std::span<const std::byte> packet, std::span<const std::byte> data = {}) noexcept {
    // Nobody looks at their keys.
    pieces_[0].addr = reinterpret_cast<std::uintptr_t>(packet.data());
    pieces_[0].length = static_cast<std::uint32_t>(packet.size());
    pieces_[1].addr = reinterpret_cast<std::uintptr_t>(data.data());
    pieces_[1].length = static_cast<std::uint32_t>(data.size());
    const int count = data.empty() ? 1 : 2;
    return post(count, batch_id, take_inline_room(packet.size() + data.size()));
  }

  /// Writes bytes that the device copies at once to `address` at the peer. There must be room. 0, or what verbs returned when
  /// it refused.
  [[nodiscard]] int post_inline_write(std::span<const std::byte> bytes, std::uint64_t address,
                                      std::uint32_t rkey) noexcept {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()), 0};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = take_inline_room(bytes.size());
    request.wr_id = batch_id;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr* refused = nullptr;
    return taken(ibv_post_send(sends->qp, &request, &refused));
  }

  /// Writes nothing, to nowhere: only an adapter that is there says so. Neither address nor key counts then (InfiniBand Architecture
  /// Specification, C9-88). It ends the batch that is open, and no other may be under way. There must be room. 0, or what verbs
  /// returned when it refused.
  [[nodiscard]] int post_empty_write() noexcept {
    assert(sends->batches.is_empty());
    end_batch(sends->tx.space().needed_inline(0));
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr_id = batch_id;
    ibv_send_wr* refused = nullptr;
    return taken(ibv_post_send(sends->qp, &request, &refused));
  }

  /// Accounts for a packet in registered memory that is going to be posted. Gives its wr_id.
  [[nodiscard]] std::uint64_t take_registered_room(Fragment& fragment) noexcept {
    SendQueue& queue = *sends;
    const auto pieces = static_cast<std::uint32_t>(fragment.des_segment_count);
    fragment.carried = queue.tx.take_signaled(queue.tx.space().needed(pieces), &fragment);
    queue.signaled();
    fragment.posted_on = this;
    return tagged(&fragment, SendTag::kFragment);
  }

  /// Posts a packet from registered memory; it belongs to the device until the completion. There must be room. 0, or what
  /// verbs returned when it refused.
  [[nodiscard]] int post_registered(Fragment& fragment) noexcept {
    const std::uint64_t id = take_registered_room(fragment);
    const std::size_t pieces = fragment.des_segment_count;
    const auto [ours, users] = fragment.segments;
    pieces_[0] = {reinterpret_cast<std::uintptr_t>(fragment.packet),
                  static_cast<std::uint32_t>(PacketHeader::kSize + ours.seg_len), fragment.lkey};
    if (pieces == 2) {
      pieces_[1] = {reinterpret_cast<std::uintptr_t>(users.seg_addr.pval), static_cast<std::uint32_t>(users.seg_len),
                    fragment.user_lkey};
    }
    const int error = post(static_cast<int>(pieces), id, IBV_SEND_SIGNALED);
    if (error != 0) [[unlikely]] {
      fragment.posted_on = nullptr;
      return error;
    }
    ++in_flight;
    return 0;
  }

  /// Posts the marker whose completion, in the error state, comes after all others. cpc::kMarkerEntries are kept for
  /// it. 0, or what verbs returned.
  [[nodiscard]] int post_drain_marker() noexcept { return post(0, tagged(this, SendTag::kDrain), IBV_SEND_SIGNALED); }

  /// Posts CTS, for which cpc::kHandshakeEntries are kept. 0, or what verbs returned.
  [[nodiscard]] int post_cts(const cpc::HandshakeSlot& handshake, std::uint32_t number) noexcept {
    PacketHeader::clear_to_send(number).write(handshake.send);
    pieces_[0] = {reinterpret_cast<std::uintptr_t>(handshake.send), PacketHeader::kSize, handshake.lkey};
    return post(1, tagged(this, SendTag::kCts), IBV_SEND_SIGNALED | (fits_inline(0) ? IBV_SEND_INLINE : 0));
  }

  /// The header of the message that goes out now, with the credits that the peer is owed.
  [[nodiscard]] PacketHeader next_header(PacketKind kind, mca_btl_base_tag_t tag) noexcept {
    was_used = true;
    PacketHeader header{kind, tag, {}, std::exchange(notes, {})};
    if (!is_shared) {
      header.grant = credits.take_grant();
    }
    return header;
  }

  /// The number of the packet that goes out now, which is counted.
  [[nodiscard]] std::uint32_t take_number() noexcept { return counts->sent++; }
  /// One that the device has been given a copy of is sent again if the link breaks. It is copied, before it is posted.
  void keep_copy(std::uint32_t number, std::span<const std::byte> packet) noexcept {
    if (std::byte* const place = kept->place(); place != nullptr) {
      std::memcpy(place, packet.data(), packet.size());
      kept->keep(number, packet.size());
    }
  }

  /// The same of an X queue, whose copies are among those of others.
  void keep_copy_of_ours(std::uint32_t number, std::span<const std::byte> packet) noexcept {
    if (std::byte* const place = kept->place(); place != nullptr) {
      std::memcpy(place, packet.data(), packet.size());
      std::memcpy(place + packet.size(), &keeper, sizeof keeper);
      kept->keep(number, packet.size() + sizeof keeper);
    }
  }

  /// Accounts for what came with a message. False if the header cannot be true.
  [[nodiscard]] bool accept(const PacketHeader& header) noexcept {
    was_used = true;
    if (is_shared) {
      return header.kind != PacketKind::kCredits && header.grant == CreditGrant{};
    }
    return credits.receive(header.grant, header.kind == PacketKind::kCredits);
  }
  /// The same of a message that came through a ring.
  [[nodiscard]] bool accept_from_ring(const PacketHeader& header) noexcept {
    was_used = true;
    return is_shared ? header.grant == CreditGrant{} : credits.receive(header.grant);
  }

 private:
  template <class T>
  static std::uint64_t tagged(T* object, SendTag tag) noexcept {
    return reinterpret_cast<std::uintptr_t>(object) | static_cast<std::uint64_t>(tag);
  }

  /// Accounts for an operation that the device copies at once, and says how it is posted: now and then one has a completion.
  /// Nobody hears of the others unless they fail.
  [[nodiscard]] unsigned take_inline_room(std::size_t size) noexcept {
    SendQueue& queue = *sends;
    const std::uint64_t bytes = queue.tx.space().needed_inline(static_cast<std::uint32_t>(size));
    if (queue.unsignaled + 1 < queue.signal_batch) {
      ++queue.unsignaled;
      (void)queue.tx.take_unsignaled(bytes);
      return IBV_SEND_INLINE;
    }
    end_batch(bytes);
    return IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  }

  /// With an operation that takes so many bytes, and is signalled.
  void end_batch(std::uint64_t bytes) noexcept {
    SendQueue& queue = *sends;
    queue.unsignaled = 0;
    if (kept) {
      kept->end_batch();
    }
    queue.batches.push(queue.tx.take_signaled(bytes, &queue));
  }

  [[nodiscard]] int post(int pieces, std::uint64_t id, unsigned flags) noexcept {
    request_.wr_id = id;
    request_.num_sge = pieces;
    request_.send_flags = flags;
    ibv_send_wr* refused = nullptr;
    return taken(ibv_post_send(sends->qp, &request_, &refused));
  }

  /// What is posted on a device that is gone counts as posted: its completion is made up later (lost_device.h).
  [[nodiscard]] int taken(int error) const noexcept {
    if (error == 0) [[likely]] {
      return 0;
    }
    return is_of_lost_device(link, error) ? 0 : error;
  }

  // A request is made once and patched for each message.
  ibv_sge pieces_[2] = {};
  ibv_send_wr request_ = {};
};

/// What the wr_id of a send stands for.
[[nodiscard]] inline SendTag tag_of(std::uint64_t id) noexcept {
  return static_cast<SendTag>(id & kSendTagMask);
}

template <class T>
[[nodiscard]] T* object_of(std::uint64_t id) noexcept {
  return reinterpret_cast<T*>(id & ~kSendTagMask);
}

/// True if the completion belongs to a receive of a message. Only wr_id tells: a failed completion has no opcode.
[[nodiscard]] inline bool is_receive(std::uint64_t id) noexcept {
  return tag_of(id) == SendTag::kFragment && object_of<Fragment>(id)->is_receive;
}

/// Where a send's completion came from.
[[nodiscard]] inline LinkQueue& send_queue(std::uint64_t id) noexcept {
  if (tag_of(id) == SendTag::kFragment) {
    return *object_of<Fragment>(id)->posted_on;
  }
  return *object_of<LinkQueue>(id);
}

[[nodiscard]] inline bool is_rdma(SendTag tag) noexcept {
  return tag == SendTag::kRdma || tag == SendTag::kRdmaPart;
}

}  // namespace fabric
