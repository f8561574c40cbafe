// SPDX-License-Identifier: BSD-3-Clause
//
// Completions: the packet path of a module.
#include <algorithm>
#include <array>
#include <cerrno>

#include "btl_fabric/counters.h"
#include "btl_fabric/module.h"
#include "btl_fabric/params.h"
#include "btl_fabric/report.h"

namespace fabric {

namespace {

constexpr int kMaxPollBatch = 256;  // the most that the cq_poll_batch parameter allows

/// What the wr_id of a send stands for.
SendTag tag_of(std::uint64_t id) noexcept {
  return static_cast<SendTag>(id & kSendTagMask);
}

template <class T>
T* object_of(std::uint64_t id) noexcept {
  return reinterpret_cast<T*>(id & ~kSendTagMask);
}

/// True if the completion belongs to a receive of a message. Only wr_id tells: a failed completion has no opcode.
bool is_receive(std::uint64_t id) noexcept {
  return tag_of(id) == SendTag::kFragment && object_of<Fragment>(id)->is_receive;
}

/// Where a send's completion came from.
EndpointQueue& send_queue(std::uint64_t id) noexcept {
  if (tag_of(id) == SendTag::kFragment) {
    const Fragment* fragment = object_of<Fragment>(id);
    return fragment->endpoint->queue(fragment->queue);
  }
  if (tag_of(id) == SendTag::kRdma || tag_of(id) == SendTag::kRdmaPart) {
    return object_of<RdmaRequest>(id)->endpoint->rdma_queue();
  }
  return *object_of<EndpointQueue>(id);
}

}  // namespace

int Module::progress() noexcept {
  int total = 0;
  for (std::size_t i = 0; i < completion_queues_->count(); ++i) {
    total += poll(completion_queues_->queue(i));
  }
  if (!closing_.empty()) [[unlikely]] {
    reap_drained();
  }
  if (rdma_waits_) [[unlikely]] {
    start_waiting_rdma();
  }
  if (short_of_buffers_) [[unlikely]] {
    refill_receives();
  }
  return total;
}

[[gnu::cold]] void Module::refill_receives() noexcept {
  short_of_buffers_ = false;
  for (const auto& [key, endpoint] : endpoints_) {
    endpoint->refill_all();
  }
  for (const auto& shared : shared_queues_) {
    if (shared && !shared->refill()) {
      note_short_of_buffers();
    }
  }
}

int Module::poll(ibv_cq* cq) noexcept {
  std::array<ibv_wc, kMaxPollBatch> completions;
  const int count = ibv_poll_cq(cq, params().cq_poll_batch, completions.data());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
      completion_failed(completion);
    } else if ((completion.opcode & IBV_WC_RECV) != 0) {
      if (tag_of(completion.wr_id) == SendTag::kHandshake) [[unlikely]] {
        handshake_completed(completion);
      } else {
        receive_completed(completion, object_of<Fragment>(completion.wr_id));
      }
    } else {
      send_completed(completion);
    }
  }
  return std::max(count, 0);
}

void Module::receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept {
  EndpointQueue* queue = fragment->posted_on;
  if (queue != nullptr) {
    queue->receives.completed();
    deliver(*queue, fragment, completion.byte_len);
    queue->endpoint.receive_done(*queue, fragment);
    return;
  }
  SharedQueue& shared = *shared_queues_[fragment->queue];
  shared.completed();
  queue = queue_pairs_.find(completion.qp_num);
  if (queue != nullptr) [[likely]] {
    deliver(*queue, fragment, completion.byte_len);
  } else {
    stranger_spoke(completion, *fragment);
  }
  if (!shared.give_back(fragment)) [[unlikely]] {
    note_short_of_buffers();
  }
}

/// Hands a message to the upper layer. The fragment is ours again when this returns.
void Module::deliver(EndpointQueue& queue, Fragment* fragment, std::uint32_t length) noexcept {
  PacketHeader header;
  const bool readable = header.read(fragment->packet, length);
  if (readable && header.kind == PacketKind::kClearToSend) [[unlikely]] {
    take_cts(queue, fragment, length);
    return;
  }
  if (!readable || !queue.endpoint.accept_grant(queue, header)) [[unlikely]] {
    report_bad_packet(*this, queue, fragment->packet, length);
    fail(queue.endpoint);
    return;
  }
  if (queue.endpoint.state() != Endpoint::State::kConnected) [[unlikely]] {
    queue.endpoint.peer_spoke();
  }
  if (header.kind == PacketKind::kAtomic) [[unlikely]] {
    take_atomic(queue, *fragment, length);
  } else if (header.kind == PacketKind::kAtomicReply) [[unlikely]] {
    take_atomic_reply(queue, *fragment, length);
  } else if (header.kind == PacketKind::kMessage) [[likely]] {
    ++counters.messages_received;
    counters.bytes_received += length - PacketHeader::kSize;
    const mca_btl_active_message_callback_t& receiver = mca_btl_base_active_message_trigger[header.tag];
    fragment->segments[0].seg_len = length - PacketHeader::kSize;
    if (receiver.cbfunc != nullptr) [[likely]] {
      receiver.cbfunc(this, header.tag, fragment, receiver.cbdata);
    }
  }
  if (!queue.waiting.empty()) {
    queue.endpoint.send_waiting(queue);
  }
}

void Module::send_completed(const ibv_wc& completion) noexcept {
  EndpointQueue& queue = send_queue(completion.wr_id);
  switch (tag_of(completion.wr_id)) {
    case SendTag::kFragment: {
      Fragment* fragment = object_of<Fragment>(completion.wr_id);
      queue.tx.completed(fragment->carried);
      const bool owned = (fragment->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
      if (fragment->callback_due && fragment->des_cbfunc != nullptr) {
        fragment->des_cbfunc(this, &queue.endpoint, fragment, OPAL_SUCCESS);
      }
      if (owned) {
        put_back(fragment);
      }
      break;
    }
    case SendTag::kBatch:
      queue.tx.completed(queue.batches.pop());
      break;
    case SendTag::kRdma:
      rdma_completed(completion.wr_id, true);
      break;
    case SendTag::kDrain:
      queue.drained = true;
      return;
    case SendTag::kRdmaPart:
    case SendTag::kCts:
    case SendTag::kHandshake:
      return;
  }
  if (!queue.waiting.empty() || (!queue.is_shared && queue.credits.explicit_due())) {
    queue.endpoint.send_waiting(queue);
  }
  if (queue.endpoint.rdma().has_waiting()) {
    queue.endpoint.rdma().send_waiting();
  }
}

[[gnu::cold]] void Module::completion_failed(const ibv_wc& completion) noexcept {
  EndpointQueue* queue = nullptr;
  if (tag_of(completion.wr_id) == SendTag::kHandshake) {
    const auto found = handshakes_.find(completion.wr_id >> cpc::kHandshakeTagBits);
    queue = found != handshakes_.end() ? &found->second->queue(0) : nullptr;
  } else if (is_receive(completion.wr_id)) {
    Fragment* fragment = object_of<Fragment>(completion.wr_id);
    queue = fragment->posted_on != nullptr ? fragment->posted_on : queue_pairs_.find(completion.qp_num);
    if (fragment->posted_on != nullptr) {
      queue->receives.completed();
      queue->receives.give_back(fragment);
    } else {
      shared_queues_[fragment->queue]->completed();
      if (!shared_queues_[fragment->queue]->give_back(fragment)) {
        note_short_of_buffers();
      }
    }
  } else {
    queue = &send_queue(completion.wr_id);
    if (tag_of(completion.wr_id) == SendTag::kDrain) {
      queue->drained = true;
    }
  }
  if (queue == nullptr) {
    return;
  }
  const bool is_fragment = !is_receive(completion.wr_id) && tag_of(completion.wr_id) == SendTag::kFragment;
  const bool is_rdma =
      tag_of(completion.wr_id) == SendTag::kRdma || tag_of(completion.wr_id) == SendTag::kRdmaPart;
  const bool is_missed = is_rdma || (is_fragment && object_of<Fragment>(completion.wr_id)->callback_due);
  const Endpoint::State state = queue->endpoint.state();
  if (state == Endpoint::State::kClosing || state == Endpoint::State::kFailed) {
    // Has been dealt with.
  } else if (is_peers_farewell(completion) && !is_missed) {
    peer_left(queue->endpoint);
  } else if (state != Endpoint::State::kPeerLeft || is_missed) {
    report_transfer_failed(*this, queue->endpoint, completion);
    fail(queue->endpoint);
  }
  if (tag_of(completion.wr_id) == SendTag::kRdma) {
    rdma_completed(completion.wr_id, false);
  }
  if (is_fragment) {
    Fragment* fragment = object_of<Fragment>(completion.wr_id);
    if ((fragment->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0) {
      put_back(fragment);
    }
  }
}

void Module::post_failed(Endpoint& endpoint, EndpointQueue& queue) noexcept {
  report_post_failed(*this, endpoint, queue.qp->qp_num, errno);
  fail(endpoint);
}

/// Tells the PML, which in Open MPI 4.1 ends the job. The endpoint refuses everything from now on.
void Module::fail(Endpoint& endpoint) noexcept {
  ++counters.connections_failed;
  endpoint.fail();
  if (error_callback != nullptr) {
    error_callback(this, MCA_BTL_ERROR_FLAGS_FATAL, endpoint.proc(), nullptr);
  }
}

}  // namespace fabric
