// SPDX-License-Identifier: BSD-3-Clause
//
// One queue of a link: what every packet touches. What is done with it is in link.h, receives in receive_buffers.h, the
// room of the queue pair in send_queue.h.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/path/receive_buffers.h"
#include "btl_fabric/path/send_queue.h"
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

/// Why a message cannot be posted now.
enum class Room { kYes, kNoCredit, kNoSlot };

/// Belongs to whoever holds the context's lock.
struct LinkQueue {
  LinkQueue(Link& owner, std::uint8_t queue_index, const QueueSpec& spec, FragmentPool& receive_pool,
            std::uint32_t inline_limit, const QueueSpace& send_space)
      : link(owner),
        index(queue_index),
        is_shared(spec.kind != QueueKind::kPerPeer),
        max_inline(inline_limit),
        own_sends(send_space),
        batch_id(tagged(this, SendTag::kBatch)),
        credits(is_shared ? QueueSpec{} : spec),
        receives(receive_pool, is_shared ? 0 : spec.receive_depth()) {}

  Link& link;
  ibv_qp* qp = nullptr;      ///< the connection owns it; an X queue has none of its own
  std::uint32_t qpn = 0;     ///< its number, which outlives it; 0: none
  const std::uint8_t index;  ///< in receive_queues
  const bool is_shared;
  const std::uint32_t max_inline;  ///< bytes
  SendQueue own_sends;             ///< of a P or S queue; one without room for an X queue
  SendQueue* sends = &own_sends;   ///< what messages go through
  std::uint64_t batch_id;          ///< of inline messages
  std::uint32_t remote_srqn = 0;   ///< of an X queue, when connected: the peer's shared receive queue
  std::uint32_t in_flight = 0;     ///< fragments posted whose completions are to come
  SendShare* share = nullptr;      ///< of an X queue, when connected
  CreditWindow credits;            ///< of a P queue; unused on a shared one
  ReceiveBuffers receives;         ///< of a P queue
  FragmentQueue waiting;           ///< for a credit or a slot, in order
  bool is_enqueued = false;        ///< in the wait list of the shared send queue
  LinkQueue* next_enqueued = nullptr;
  bool said_goodbye = false;  ///< the peer has: it sends nothing more over this queue
  bool drained = false;       ///< every send completion is in: the marker's was the last

  [[nodiscard]] Room room() const noexcept {
    if (!sends->has_room()) {
      return Room::kNoSlot;
    }
    return is_shared || credits.sendable() > 0 ? Room::kYes : Room::kNoCredit;
  }

  [[nodiscard]] bool fits_inline(std::size_t message_bytes) const noexcept {
    return PacketHeader::kSize + message_bytes <= max_inline;
  }

  /// Posts a packet that the device copies at once: `packet` may be reused when this returns. There must be room.
  /// 0, or what verbs returned when it refused.
  [[nodiscard]] int post_inline(const std::byte* packet, std::uint32_t length) noexcept {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(packet), length, 0};
    SendQueue& queue = *sends;
    const std::uint64_t bytes = queue.tx.space().needed_inline(length);
    if (queue.unsignaled + 1 < queue.signal_batch) {
      ++queue.unsignaled;
      (void)queue.tx.take_unsignaled(bytes);
      // Nobody hears of it unless it fails.
      return post(&sge, 1, batch_id, IBV_SEND_INLINE);
    }
    queue.unsignaled = 0;
    queue.batches.push(queue.tx.take_signaled(bytes, &queue));
    return post(&sge, 1, batch_id, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  }

  /// Posts a packet from registered memory; it belongs to the device until the completion. There must be room. 0, or what
  /// verbs returned when it refused.
  [[nodiscard]] int post_registered(Fragment& fragment) noexcept {
    SendQueue& queue = *sends;
    const auto pieces = static_cast<std::uint32_t>(fragment.des_segment_count);
    fragment.carried = queue.tx.take_signaled(queue.tx.space().needed(pieces), &fragment);
    queue.unsignaled = 0;
    const auto [ours, users] = fragment.segments;
    ibv_sge sges[2] = {{reinterpret_cast<std::uintptr_t>(fragment.packet),
                        static_cast<std::uint32_t>(PacketHeader::kSize + ours.seg_len), fragment.lkey},
                       {}};
    if (fragment.des_segment_count == 2) {
      sges[1] = {reinterpret_cast<std::uintptr_t>(users.seg_addr.pval), static_cast<std::uint32_t>(users.seg_len),
                 fragment.user_lkey};
    }
    fragment.posted_on = this;
    const int error = post(sges, static_cast<int>(fragment.des_segment_count), tagged(&fragment, SendTag::kFragment),
                           IBV_SEND_SIGNALED);
    in_flight += error == 0 ? 1 : 0;
    return error;
  }

  /// Posts the marker whose completion, in the error state, comes after all others. cpc::kMarkerEntries are kept for
  /// it. 0, or what verbs returned.
  [[nodiscard]] int post_drain_marker() noexcept {
    return post(nullptr, 0, tagged(this, SendTag::kDrain), IBV_SEND_SIGNALED);
  }

  /// Posts CTS, for which cpc::kHandshakeEntries are kept. 0, or what verbs returned.
  [[nodiscard]] int post_cts(const cpc::HandshakeSlot& handshake, std::uint32_t number) noexcept {
    PacketHeader::clear_to_send(number).write(handshake.send);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(handshake.send), PacketHeader::kSize, handshake.lkey};
    return post(&sge, 1, tagged(this, SendTag::kCts), IBV_SEND_SIGNALED | (fits_inline(0) ? IBV_SEND_INLINE : 0));
  }

  /// The header of the message that goes out now, with the credits that the peer is owed.
  [[nodiscard]] PacketHeader next_header(PacketKind kind, mca_btl_base_tag_t tag) noexcept {
    PacketHeader header{kind, tag, {}};
    if (!is_shared) {
      header.grant = credits.take_grant();
    }
    return header;
  }

  /// Accounts for what came with a message. False if the header cannot be true.
  [[nodiscard]] bool accept(const PacketHeader& header) noexcept {
    if (is_shared) {
      return header.kind != PacketKind::kCredits && header.grant == CreditGrant{};
    }
    return credits.receive(header.grant, header.kind == PacketKind::kCredits);
  }

 private:
  template <class T>
  static std::uint64_t tagged(T* object, SendTag tag) noexcept {
    return reinterpret_cast<std::uintptr_t>(object) | static_cast<std::uint64_t>(tag);
  }

  [[nodiscard]] int post(ibv_sge* sges, int sge_count, std::uint64_t id, int flags) noexcept {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = sges;
    request.num_sge = sge_count;
    request.opcode = IBV_WR_SEND;
    request.send_flags = static_cast<unsigned>(flags);
    request.qp_type.xrc.remote_srqn = remote_srqn;  // only an XRC queue pair looks at it
    ibv_send_wr* refused = nullptr;
    return ibv_post_send(sends->qp, &request, &refused);
  }
};

}  // namespace fabric
