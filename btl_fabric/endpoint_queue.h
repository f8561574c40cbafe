// SPDX-License-Identifier: BSD-3-Clause
//
// One queue pair of an endpoint: what the packet path touches. Set-up and teardown are in endpoint.cc, receives in
// receive_buffers.h.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "btl_fabric/fragment.h"
#include "btl_fabric/packet_header.h"
#include "btl_fabric/receive_buffers.h"
#include "common/credit_window.h"
#include "common/receive_queues.h"
#include "cpc/queue_pairs.h"

namespace fabric {

class Endpoint;

/// What the wr_id of a send points to, told by its lowest bits (everything pointed to is aligned to 8 bytes).
enum class SendTag : std::uint64_t {
  kFragment = 0,  ///< a Fragment: its slots, and whatever waits for its completion
  kBatch = 1,     ///< an EndpointQueue: signal_batch_ entries without a fragment are done
  kDrain = 2,     ///< an EndpointQueue: everything ever posted is done
};
inline constexpr std::uint64_t kSendTagMask = 7;

/// Why a message cannot be posted now.
enum class Room { kYes, kNoCredit, kNoSlot };

/// Belongs to whoever holds the BTL lock.
struct EndpointQueue {
  EndpointQueue(Endpoint& owner, std::uint8_t queue_index, const QueueSpec& spec, FragmentPool& receive_pool,
                std::uint32_t inline_limit) noexcept
      : endpoint(owner),
        index(queue_index),
        is_shared(spec.kind != QueueKind::kPerPeer),
        max_inline(inline_limit),
        slots(spec.send_depth()),
        signal_batch(std::clamp<std::uint32_t>(slots / 4, 1, 64)),
        credits(is_shared ? QueueSpec{} : spec),
        receives(receive_pool) {}

  Endpoint& endpoint;
  ibv_qp* qp = nullptr;      ///< the connection owns it
  const std::uint8_t index;  ///< in receive_queues
  const bool is_shared;
  const std::uint32_t max_inline;  ///< bytes
  std::uint32_t slots;             ///< free entries of the send queue, as far as completions have told
  std::uint32_t unsignaled = 0;    ///< posted since the last signalled one
  const std::uint32_t signal_batch;
  CreditWindow credits;     ///< of a P queue; unused on a shared one
  ReceiveBuffers receives;  ///< of a P queue
  FragmentQueue waiting;    ///< for a credit or a slot, in order
  bool drained = false;     ///< every send completion is in; see Endpoint::drain()

  [[nodiscard]] Room room() const noexcept {
    if (slots == 0) {
      return Room::kNoSlot;
    }
    return is_shared || credits.sendable() > 0 ? Room::kYes : Room::kNoCredit;
  }

  [[nodiscard]] bool fits_inline(std::size_t message_bytes) const noexcept {
    return PacketHeader::kSize + message_bytes <= max_inline;
  }

  /// Posts a packet that the device copies at once: `packet` may be reused when this returns. A slot must be free.
  /// False if verbs refused.
  [[nodiscard]] bool post_inline(const std::byte* packet, std::uint32_t length) noexcept {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(packet), length, 0};
    if (unsignaled + 1 < signal_batch) {
      ++unsignaled;
      return post(&sge, 1, 0, IBV_SEND_INLINE);
    }
    unsignaled = 0;
    return post(&sge, 1, tagged(this, SendTag::kBatch), IBV_SEND_INLINE | IBV_SEND_SIGNALED);
  }

  /// Posts a packet from registered memory; it belongs to the device until the completion. A slot must be free.
  [[nodiscard]] bool post_registered(Fragment& fragment) noexcept {
    fragment.slots = unsignaled + 1;
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
    slots += cpc::kMarkerEntries;
    return post(nullptr, 0, tagged(this, SendTag::kDrain), IBV_SEND_SIGNALED);
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
    assert(slots > 0);
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = sges;
    request.num_sge = sge_count;
    request.opcode = IBV_WR_SEND;
    request.send_flags = static_cast<unsigned>(flags);
    ibv_send_wr* refused = nullptr;
    --slots;
    return ibv_post_send(qp, &request, &refused) == 0;
  }
};

}  // namespace fabric
