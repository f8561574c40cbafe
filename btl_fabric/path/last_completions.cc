// SPDX-License-Identifier: BSD-3-Clause
//
// Completions at the very end, when the upper layer is gone: goodbyes are to come and go.
#include <algorithm>
#include <array>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

[[gnu::cold]] void PacketPath::poll_goodbyes() noexcept {
  std::array<ibv_wc, 16> completions;
  const int most = std::min(settings_.poll_batch, static_cast<int>(completions.size()));
  post_packets();
  for (std::size_t i = 0; i < queues_.completion_queues->count(); ++i) {
    const int count = ibv_poll_cq(queues_.completion_queues->queue(i), most, completions.data());
    for (int k = 0; k < count; ++k) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(k)];
      if (is_receive(completion.wr_id)) {
        last_receive_completed(completion);
      } else {
        last_send_completed(completion);
      }
    }
  }
  do_the_rest();
}

/// A goodbye of ours may wait for the credits that have come with it, and the peer's for those that we owe, or for a receive.
[[gnu::cold]] void PacketPath::last_receive_completed(const ibv_wc& completion) noexcept {
  if (completion.status != IBV_WC_SUCCESS) {
    return;
  }
  auto* fragment = object_of<Fragment>(completion.wr_id);
  LinkQueue* const own = fragment->posted_on;
  LinkQueue* const queue = own != nullptr ? own : queue_of(completion.qp_num, *fragment);
  PacketHeader header;
  if (queue != nullptr && header.read(fragment->packet, completion.byte_len) &&
      header.kind != PacketKind::kClearToSend && queue->accept(header) && header.kind == PacketKind::kGoodbye &&
      queue->link.hear_goodbye(*queue, fragment->packet, completion.byte_len)) {
    events().goodbye_arrived(queue->link);
  }
  if (own != nullptr) {
    own->receives.completed(fragment);
    own->link.receive_done(*own, fragment);
    return;
  }
  SharedQueue& shared = *queues_.shared_queues[fragment->queue];
  shared.completed(fragment);
  if (!shared.give_back(fragment)) {
    shared_queues_short_ = is_more_to_do_ = true;
  }
}

/// A goodbye of ours has arrived, or waits for the room and the buffer that are free now.
[[gnu::cold]] void PacketPath::last_send_completed(const ibv_wc& completion) noexcept {
  const SendTag tag = tag_of(completion.wr_id);
  Fragment* const fragment = tag == SendTag::kFragment ? object_of<Fragment>(completion.wr_id) : nullptr;
  const bool is_goodbye = fragment != nullptr && fragment->kind == PacketKind::kGoodbye;
  if (completion.status != IBV_WC_SUCCESS) {
    if (is_goodbye) {
      fragment->posted_on->link.goodbye_ended();
    }
    return;
  }
  if (fragment != nullptr && !is_goodbye) {
    forget_caller(*fragment);
  }
  if (tag == SendTag::kRdma) {
    object_of<RdmaRequest>(completion.wr_id)->callback = nullptr;
  }
  send_completed(completion);
}

}  // namespace fabric
