// SPDX-License-Identifier: BSD-3-Clause
//
// Completions: the packet path of a module.
#include <algorithm>
#include <array>
#include <cerrno>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

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

/// Whose message a receive of a shared queue is, told by the queue pair that it came through. Those of X queues bring
/// the messages of all queues.
EndpointQueue* Module::queue_of(std::uint32_t qpn, const Fragment& fragment) const noexcept {
  EndpointQueue* queue = queue_pairs_.find(qpn);
  if (queue != nullptr && queue->index != fragment.queue) [[unlikely]] {
    queue = &queue->endpoint.queue(fragment.queue);
  }
  return queue;
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
  queue = queue_of(completion.qp_num, *fragment);
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
    ++counters().messages_received;
    counters().bytes_received += length - PacketHeader::kSize;
    const mca_btl_active_message_callback_t& receiver = mca_btl_base_active_message_trigger[header.tag];
    fragment->segments[0].seg_len = length - PacketHeader::kSize;
    if (receiver.cbfunc != nullptr) [[likely]] {
      hand_over(receiver, &face(), &queue.endpoint.face(), header.tag, *fragment);
    }
  }
  if (!queue.waiting.empty()) {
    queue.endpoint.send_waiting(queue);
  }
}

void Module::send_completed(const ibv_wc& completion) noexcept {
  if (tag_of(completion.wr_id) == SendTag::kSharedBatch) [[unlikely]] {
    SharedSendQueue& sends = object_of<SendShare>(completion.wr_id)->sends;
    sends.tx.completed(sends.batches.pop(), static_cast<SendQueue*>(&sends));
    sends.serve();
    return;
  }
  EndpointQueue& queue = send_queue(completion.wr_id);
  switch (tag_of(completion.wr_id)) {
    case SendTag::kFragment: {
      Fragment* fragment = object_of<Fragment>(completion.wr_id);
      queue.sends->tx.completed(fragment->carried, fragment);
      --queue.in_flight;
      send_ended(fragment, OPAL_SUCCESS);
      break;
    }
    case SendTag::kBatch:
      queue.own_sends.tx.completed(queue.own_sends.batches.pop(), &queue.own_sends);
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
    case SendTag::kSharedBatch:
      return;
  }
  if (queue.share != nullptr) [[unlikely]] {
    queue.share->sends.serve();
    return;
  }
  if (!queue.waiting.empty() || (!queue.is_shared && queue.credits.explicit_due())) {
    queue.endpoint.send_waiting(queue);
  }
  if (queue.endpoint.rdma().has_waiting()) {
    queue.endpoint.rdma().send_waiting();
  }
}

/// A receive failed, and its buffer is free. Gives the endpoint whose message it was to be, if that is known.
[[gnu::cold]] Endpoint* Module::receive_failed(const ibv_wc& completion) noexcept {
  Fragment* fragment = object_of<Fragment>(completion.wr_id);
  EndpointQueue* queue = fragment->posted_on;
  if (queue != nullptr) {
    queue->receives.completed();
    queue->receives.give_back(fragment);
  } else {
    queue = queue_pairs_.find(completion.qp_num);
    shared_queues_[fragment->queue]->completed();
    if (!shared_queues_[fragment->queue]->give_back(fragment)) {
      note_short_of_buffers();
    }
  }
  return queue != nullptr ? &queue->endpoint : nullptr;
}

[[gnu::cold]] void Module::completion_failed(const ibv_wc& completion) noexcept {
  const SendTag tag = tag_of(completion.wr_id);
  if (tag == SendTag::kHandshake) {
    const auto found = handshakes_.find(completion.wr_id >> cpc::kHandshakeTagBits);
    if (found != handshakes_.end()) {
      endpoint_failed(*found->second, completion, false);
    }
    return;
  }
  if (is_receive(completion.wr_id)) {
    if (Endpoint* endpoint = receive_failed(completion); endpoint != nullptr) {
      endpoint_failed(*endpoint, completion, false);
    }
    return;
  }
  if (tag == SendTag::kSharedBatch) {
    SendShare& share = *object_of<SendShare>(completion.wr_id);
    sender_failed(share.sends, share.endpoint, completion);
    return;
  }
  EndpointQueue& queue = send_queue(completion.wr_id);
  if (tag == SendTag::kDrain) {
    queue.drained = true;
  }
  Fragment* fragment = tag == SendTag::kFragment ? object_of<Fragment>(completion.wr_id) : nullptr;
  const bool is_rdma = tag == SendTag::kRdma || tag == SendTag::kRdmaPart;
  if (queue.share != nullptr) {
    sender_failed(queue.share->sends, &queue.endpoint, completion);
  } else {
    endpoint_failed(queue.endpoint, completion, is_rdma || (fragment != nullptr && fragment->callback_due));
  }
  if (tag == SendTag::kRdma) {
    rdma_completed(completion.wr_id, false);
  }
  if (fragment != nullptr) {
    --queue.in_flight;
    if (queue.endpoint.state() != Endpoint::State::kFailed) {
      fragment->callback_due = false;  // the upper layer has taken its leave of the peer
    }
    send_ended(fragment, OPAL_ERR_UNREACH);
  }
}

/// `is_missed`: somebody waits for what has failed.
void Module::endpoint_failed(Endpoint& endpoint, const ibv_wc& completion, bool is_missed) noexcept {
  const Endpoint::State state = endpoint.state();
  if (state == Endpoint::State::kClosing || state == Endpoint::State::kFailed) {
    return;  // has been dealt with
  }
  if (is_peers_farewell(completion) && !is_missed) {
    peer_left(endpoint);
  } else if (state != Endpoint::State::kPeerLeft || is_missed) {
    report_transfer_failed(*this, endpoint, completion);
    fail(endpoint);
  }
}

/// A request to `endpoint` (null if that is gone) has failed, and with it the queue pair. One report is enough, and the
/// queue pair of those who all are leaving is not missed.
void Module::sender_failed(SharedSendQueue& sends, Endpoint* endpoint, const ibv_wc& completion) noexcept {
  const auto is_alive = [](const Endpoint* one) { return one != nullptr && one->is_up(); };
  if (!is_alive(endpoint)) {
    const auto alive = std::find_if(sends.shares().begin(), sends.shares().end(),
                                    [&](const SendShare& share) { return is_alive(share.endpoint); });
    endpoint = alive != sends.shares().end() ? alive->endpoint : nullptr;
  }
  if (endpoint != nullptr && !sends.has_failed()) {
    report_transfer_failed(*this, *endpoint, completion);
    fail_sharers(sends, *endpoint);
  }
}

/// Nobody can send through it any more, neither `first` nor the others.
void Module::fail_sharers(SharedSendQueue& sends, Endpoint& first) noexcept {
  sends.fail();
  const std::string why =
      "the queue pair that it shared with rank " + std::to_string(first.key().peer.rank) + " has failed";
  fail(first);
  for (const SendShare& share : sends.shares()) {
    if (share.endpoint != nullptr && share.endpoint->is_up()) {
      fail(*share.endpoint);
      share.endpoint->give_up(cpc::Direction::kOutgoing, why);
    }
  }
}

void Module::post_failed(Endpoint& endpoint, EndpointQueue& queue) noexcept {
  report_post_failed(*this, endpoint, queue.sends->qp->qp_num, errno);
  if (queue.share != nullptr) {
    fail_sharers(queue.share->sends, endpoint);
  } else {
    fail(endpoint);
  }
}

/// Tells the PML, which ends the job unless that can live without the peer (ULFM, from Open MPI 5.0 on). Then all that waits
/// for the endpoint fails, and what is under way as its completions come. The endpoint refuses everything from now on.
void Module::fail(Endpoint& endpoint) noexcept {
  ++counters().connections_failed;
  endpoint.fail();
  tell_upper_layer(endpoint.proc());
  endpoint.fail_waiting();
}

void Module::tell_upper_layer(opal_proc_t* proc) const noexcept {
  if (face().error_callback != nullptr) {
    face().error_callback(&face(), MCA_BTL_ERROR_FLAGS_FATAL, proc, nullptr);
  }
}

}  // namespace fabric
