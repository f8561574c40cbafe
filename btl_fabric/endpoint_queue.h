// SPDX-License-Identifier: BSD-3-Clause
//
// One queue pair of an endpoint: what the packet path touches. Set-up and teardown are in endpoint.cc, receives in
// receive_buffers.h.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

#include "btl_fabric/fragment.h"
#include "btl_fabric/packet_header.h"
#include "btl_fabric/receive_buffers.h"
#include "common/credit_window.h"
#include "common/queue_credits.h"
#include "common/receive_queues.h"
#include "cpc/queue_pairs.h"

namespace fabric {

class Endpoint;

/// What the wr_id of a request points to, told by its lowest bits (everything pointed to is aligned to 8 bytes).
enum class SendTag : std::uint64_t {
  kFragment = 0,  ///< a Fragment: its room, and whatever waits for its completion
  kBatch = 1,     ///< an EndpointQueue: the oldest batch of entries without a fragment is done
  kDrain = 2,     ///< an EndpointQueue: everything ever posted is done
  kCts = 3,       ///< an EndpointQueue: its CTS is out
  kRdma = 5,      ///< an RdmaRequest: it is done
  kRdmaPart = 6,  ///< an RdmaRequest: a part has failed, and the rest will
  kHandshake = cpc::kHandshakeTag,  ///< no pointer: the receive of the peer's CTS, HandshakeSlot::serial
};
inline constexpr std::uint64_t kSendTagMask = 7;
static_assert(kSendTagMask == (1U << cpc::kHandshakeTagBits) - 1);
static_assert(cpc::kHandshakeBytes == PacketHeader::kSize);

/// Why a message cannot be posted now.
enum class Room { kYes, kNoCredit, kNoSlot };

/// The carried bytes of batches of sends whose completions are to come, oldest first.
class BatchRing {
 public:
  explicit BatchRing(std::size_t most) : bytes_(most) {}
  void push(std::uint64_t carried) noexcept { bytes_[(first_ + count_++) % bytes_.size()] = carried; }
  [[nodiscard]] std::uint64_t pop() noexcept {
    const std::uint64_t oldest = bytes_[first_];
    first_ = (first_ + 1) % bytes_.size();
    --count_;
    return oldest;
  }

 private:
  std::vector<std::uint64_t> bytes_;  ///< as many as ever fit the send queue
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Belongs to whoever holds the BTL lock.
struct EndpointQueue {
  EndpointQueue(Endpoint& owner, std::uint8_t queue_index, const QueueSpec& spec, FragmentPool& receive_pool,
                std::uint32_t inline_limit, const QueueSpace& send_space)
      : endpoint(owner),
        index(queue_index),
        is_shared(spec.kind != QueueKind::kPerPeer),
        max_inline(inline_limit),
        tx(send_space),
        signal_batch(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tx.size_left() / 4, 1, 64))),
        batches(send_space.entries() / signal_batch + 2),
        credits(is_shared ? QueueSpec{} : spec),
        receives(receive_pool) {}

  Endpoint& endpoint;
  ibv_qp* qp = nullptr;      ///< the connection owns it
  const std::uint8_t index;  ///< in receive_queues
  const bool is_shared;
  const std::uint32_t max_inline;  ///< bytes
  TxCredits tx;                    ///< room in the send queue, as far as completions have told
  std::uint32_t unsignaled = 0;    ///< operations posted since the last signalled one
  const std::uint32_t signal_batch;
  BatchRing batches;
  CreditWindow credits;     ///< of a P queue; unused on a shared one
  ReceiveBuffers receives;  ///< of a P queue
  FragmentQueue waiting;    ///< for a credit or a slot, in order
  bool drained = false;     ///< every send completion is in; see Endpoint::drain()

  [[nodiscard]] Room room() const noexcept {
    if (!tx.has_room()) {
      return Room::kNoSlot;
    }
    return is_shared || credits.sendable() > 0 ? Room::kYes : Room::kNoCredit;
  }

  /// Messages that can be posted now, of any size that the queue takes.
  [[nodiscard]] std::uint64_t tx_size_left() const noexcept {
    return is_shared ? tx.size_left() : std::min<std::uint64_t>(tx.size_left(), credits.sendable());
  }

  [[nodiscard]] bool fits_inline(std::size_t message_bytes) const noexcept {
    return PacketHeader::kSize + message_bytes <= max_inline;
  }

  /// Posts a packet that the device copies at once: `packet` may be reused when this returns. There must be room.
  /// False if verbs refused.
  [[nodiscard]] bool post_inline(const std::byte* packet, std::uint32_t length) noexcept {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(packet), length, 0};
    const std::uint64_t bytes = tx.space().needed_inline(length);
    if (unsignaled + 1 < signal_batch) {
      ++unsignaled;
      (void)tx.take_unsignaled(bytes);
      // Nobody hears of it unless it fails.
      return post(&sge, 1, tagged(this, SendTag::kBatch), IBV_SEND_INLINE);
    }
    unsignaled = 0;
    batches.push(tx.take_signaled(bytes));
    return post(&sge, 1, tagged(this, SendTag::kBatch), IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  }

  /// Posts a packet from registered memory; it belongs to the device until the completion. There must be room.
  [[nodiscard]] bool post_registered(Fragment& fragment) noexcept {
    fragment.carried = tx.take_signaled(tx.space().needed(static_cast<std::uint32_t>(fragment.des_segment_count)));
    unsignaled = 0;
    const auto [ours, users] = fragment.segments;
    ibv_sge sges[2] = {{reinterpret_cast<std::uintptr_t>(fragment.packet),
                        static_cast<std::uint32_t>(PacketHeader::kSize + ours.seg_len), fragment.lkey},
                       {}};
    if (fragment.des_segment_count == 2) {
      sges[1] = {reinterpret_cast<std::uintptr_t>(users.seg_addr.pval), static_cast<std::uint32_t>(users.seg_len),
                 fragment.user_lkey};
    }
    return post(sges, static_cast<int>(fragment.des_segment_count), tagged(&fragment, SendTag::kFragment),
                IBV_SEND_SIGNALED);
  }

  /// Posts the marker whose completion, in the error state, comes after all others. cpc::kMarkerEntries are kept for
  /// it.
  [[nodiscard]] bool post_drain_marker() noexcept {
    return post(nullptr, 0, tagged(this, SendTag::kDrain), IBV_SEND_SIGNALED);
  }

  /// Posts CTS, for which cpc::kHandshakeEntries are kept.
  [[nodiscard]] bool post_cts(const cpc::HandshakeSlot& handshake) noexcept {
    PacketHeader{PacketKind::kClearToSend, 0, {}}.write(handshake.send);
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

 private:
  template <class T>
  static std::uint64_t tagged(T* object, SendTag tag) noexcept {
    return reinterpret_cast<std::uintptr_t>(object) | static_cast<std::uint64_t>(tag);
  }

  [[nodiscard]] bool post(ibv_sge* sges, int sge_count, std::uint64_t id, int flags) noexcept {
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = sges;
    request.num_sge = sge_count;
    request.opcode = IBV_WR_SEND;
    request.send_flags = static_cast<unsigned>(flags);
    ibv_send_wr* refused = nullptr;
    return ibv_post_send(qp, &request, &refused) == 0;
  }
};

}  // namespace fabric
