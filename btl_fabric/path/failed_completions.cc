// SPDX-License-Identifier: BSD-3-Clause
//
// Completions that say what went wrong, and packets that break the protocol.
#include "btl_fabric/path/link.h"
#include "btl_fabric/path/link_healing.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

[[gnu::cold]] void PacketPath::bad_packet(LinkQueue& queue, std::span<const std::byte> packet) noexcept {
  events().link_failed(queue.link, {.kind = LinkFailure::Kind::kBadPacket,
                                    .qpn = queue.qp != nullptr ? queue.qp->qp_num : queue.link.target_qpn_,
                                    .packet = packet});
}

/// A receive failed, and its buffer is free. Gives the queue whose message it was to be, if that is known.
[[gnu::cold]] LinkQueue* PacketPath::receive_failed(const ibv_wc& completion) noexcept {
  Fragment* fragment = object_of<Fragment>(completion.wr_id);
  if (LinkQueue* queue = fragment->posted_on; queue != nullptr) {
    queue->receives.completed(fragment);
    queue->receives.give_back(fragment);
    return queue;
  }
  SharedQueue& shared = *queues_.shared_queues[fragment->queue];
  shared.completed(fragment);
  if (!shared.give_back(fragment)) {
    shared_queues_short_ = is_more_to_do_ = true;
  }
  return queue_pairs_.find(completion.qp_num);
}

[[gnu::cold]] void PacketPath::completion_failed(const ibv_wc completion) noexcept {
  const SendTag tag = tag_of(completion.wr_id);
  if (tag == SendTag::kHandshake) {
    events().handshake_completed(completion);
    return;
  }
  LinkFailure failure{
      .kind = LinkFailure::Kind::kCompletion, .qpn = completion.qp_num, .is_missed = false, .completion = completion};
  if (is_receive(completion.wr_id)) {
    if (LinkQueue* queue = receive_failed(completion); queue != nullptr) {
      events().link_failed(queue->link, failure);
    }
    return;
  }
  if (tag == SendTag::kSharedBatch) {
    const SendShare& share = *object_of<SendShare>(completion.wr_id);
    events().sender_failed(share.sends, share.link, failure);
    return;
  }
  Fragment* fragment = tag == SendTag::kFragment ? object_of<Fragment>(completion.wr_id) : nullptr;
  RdmaRequest* request = is_rdma(tag) ? object_of<RdmaRequest>(completion.wr_id) : nullptr;
  LinkQueue& queue = request != nullptr ? request->link->rdma_queue() : send_queue(completion.wr_id);
  Link& link = queue.link;
  if (tag == SendTag::kDrain) {
    queue.drained = true;
  }
  // Of a link that is given up by agreement a goodbye may be under way still: the peer's was enough.
  const bool is_needless = fragment != nullptr && is_about_link(fragment->kind) && queue.share == nullptr &&
                           link.state() == Link::State::kFailed;
  const bool is_kept = link.state() == Link::State::kBroken;
  // CTS that is flushed tells of what an event of the device may have told too early.
  const bool is_cts = tag == SendTag::kCts && settings_.heals && link.state() < Link::State::kLeaving;
  failure.is_missed =
      is_cts || (!is_kept && (request != nullptr || (fragment != nullptr && fragment->callback_due && !is_needless)));
  failure.goodbye_carried = fragment != nullptr && fragment->kind == PacketKind::kGoodbye ? fragment->carried : 0;
  if (queue.share != nullptr) {
    events().sender_failed(queue.share->sends, &link, failure);
  } else {
    events().link_failed(link, failure);
  }
  if (tag == SendTag::kRdma) {
    link.rdma().completed(request, false);
  }
  if (fragment != nullptr) {
    --queue.in_flight;
    fragment->posted_on = nullptr;
    // What is flushed before we hear that the peer has given the connection up is kept too.
    if (LinkHealing(link).keeps() && is_counted(fragment->kind)) {
      queue.unfinished.push_back(fragment);
      return;
    }
    if (link.state() != Link::State::kFailed) {
      forget_caller(*fragment);  // the upper layer has taken its leave of the peer
    }
    end_send(link.upper(), fragment, OPAL_ERR_UNREACH);
  }
}

}  // namespace fabric
