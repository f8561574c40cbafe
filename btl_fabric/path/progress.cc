// SPDX-License-Identifier: BSD-3-Clause
//
// Completions: where messages come in, and where those that went out end.
#include <algorithm>
#include <chrono>

#include "btl_fabric/path/link.h"
#include "btl_fabric/path/link_rest.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"

namespace fabric {

using namespace std::chrono_literals;

// ---- Receives

[[gnu::always_inline]] inline void PacketPath::deliver_message(LinkQueue& queue, Fragment& fragment, std::byte* message,
                                                               std::size_t size, mca_btl_base_tag_t tag) noexcept {
  ++counters().messages_received;
  counters().bytes_received += size;
  const mca_btl_active_message_callback_t& receiver = settings_.receivers[tag];
  fragment.segments[0].seg_addr.pval = message;
  fragment.segments[0].seg_len = size;
  if (receiver.cbfunc != nullptr) [[likely]] {
    const UpperHandles& upper = queue.link.upper();
    hand_over(receiver, upper.module, upper.endpoint, tag, fragment);
  }
}

/// Hands a message to the upper layer. The fragment is ours again when this returns.
[[gnu::always_inline]] inline void PacketPath::deliver(LinkQueue& queue, Fragment* fragment,
                                                       std::uint32_t length) noexcept {
  PacketHeader header;
  const bool readable = header.read(fragment->packet, length);
  if (readable && header.kind == PacketKind::kClearToSend) [[unlikely]] {
    events().cts_received(queue, {fragment->packet, length});
    return;
  }
  if (!readable || !queue.accept(header) || (header.notes != 0 && !queue.link.take_notes(queue, header))) [[unlikely]] {
    bad_packet(queue, {fragment->packet, length});
    return;
  }
  if (queue.link.is_silent_) [[unlikely]] {
    queue.link.is_silent_ = false;
    events().peer_spoke(queue.link);
  }
  if (header.kind == PacketKind::kMessage) [[likely]] {
    ++queue.counts->taken;
    deliver_message(queue, *fragment, fragment->packet + PacketHeader::kSize, length - PacketHeader::kSize, header.tag);
    if (--queue.until_ring == 0) [[unlikely]] {
      queue.link.think_of_ring();
    }
  } else if (header.kind == PacketKind::kMessages) {
    ++queue.counts->taken;
    deliver_several(queue, *fragment, length);
  } else if (header.kind != PacketKind::kCredits) [[unlikely]] {
    deliver_to_link(queue, header.kind, {fragment->packet, length});
  }
  if (!queue.waiting.empty()) {
    queue.link.send_waiting(queue);
  }
}

/// In one piece with take_batch().
[[gnu::always_inline]] inline void PacketPath::receive_completed(const ibv_wc& completion,
                                                                 Fragment* fragment) noexcept {
  LinkQueue* const own = fragment->posted_on;
  if (own != nullptr) {
    own->receives.completed(fragment);
    deliver(*own, fragment, completion.byte_len);
    own->link.receive_done(*own, fragment);
  } else {
    shared_receive_completed(completion, fragment);
  }
}

void PacketPath::shared_receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept {
  SharedQueue& shared = *queues_.shared_queues[fragment->queue];
  shared.completed(fragment);
  LinkQueue* const queue = queue_of(completion.qp_num, *fragment);
  if (queue != nullptr) [[likely]] {
    deliver(*queue, fragment, completion.byte_len);
  } else {
    events().unknown_queue_pair_spoke(completion.qp_num, {fragment->packet, completion.byte_len});
  }
  if (!shared.give_back(fragment)) [[unlikely]] {
    shared_queues_short_ = is_more_to_do_ = true;
  }
}

/// Whose message a receive of a shared queue is, told by the queue pair that it came through. Those of X queues bring
/// the messages of all queues.
LinkQueue* PacketPath::queue_of(std::uint32_t qpn, const Fragment& fragment) const noexcept {
  LinkQueue* queue = queue_pairs_.find(qpn);
  if (queue != nullptr && queue->index != fragment.queue) [[unlikely]] {
    queue = &queue->link.queue(fragment.queue);
  }
  return queue;
}

// ---- All completions

/// Takes what has been polled and is not handled yet. A callback may put other completions in the place of the one that is
/// handled: whoever calls it has taken out what it needs.
int PacketPath::take_batch() noexcept {
  int total = 0;
  ++depth_;
  for (; batch_next_ < batch_end_; ++total) {
    const ibv_wc& completion = batch_[batch_next_++];
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
      completion_failed(completion);
    } else if ((completion.opcode & IBV_WC_RECV) != 0) {
      if (tag_of(completion.wr_id) == SendTag::kHandshake) [[unlikely]] {
        events().handshake_completed(completion);
      } else {
        receive_completed(completion, object_of<Fragment>(completion.wr_id));
      }
    } else {
      send_completed(completion);
    }
  }
  --depth_;
  return total;
}

/// The next completions of a queue.
[[gnu::always_inline]] inline int PacketPath::poll(ibv_cq* queue) noexcept {
  const int count = ibv_poll_cq(queue, settings_.poll_batch, batch_.data());
  if (count <= 0) {
    return 0;
  }
  batch_next_ = 0;
  batch_end_ = static_cast<unsigned>(count);
  return take_batch();
}

/// One batch of each completion queue.
int PacketPath::poll_all() noexcept {
  int total = 0;
  const CompletionQueueSet& completion_queues = *queues_.completion_queues;
  const std::size_t queues = completion_queues.count();
  for (std::size_t i = 0; i < queues; ++i) {
    total += poll(completion_queues.queue(i));
  }
  return total;
}

/// Messages wait in the upper layer for send buffers. It sends one for each that it is told of in here (is_short_of_buffers()), and
/// tries all of them again after each call of progress(): better few calls in which much happens. Ends when the peers are silent
/// for a moment, by the clock: where processes share processors, a look may take a scheduler's turn. Ends at once when nothing comes
/// and there is a buffer again: it has come back without a word, so the upper layer has to try by itself.
[[gnu::noinline]] int PacketPath::poll_for_buffers() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr int kMost = 8192;                            // completions: others have messages too
  constexpr std::chrono::microseconds kPatience = 50us;  // trying thousands of messages takes longer
  int total = 0;
  Clock::time_point silent_since{};
  while (total < kMost && is_short_of_buffers()) {
    const int more = (ringed_.empty() ? 0 : poll_rings()) + poll_all();
    total += more;
    if (more > 0) {
      silent_since = {};
      continue;
    }
    if (queues_.send_pools[short_queue_.load(std::memory_order_relaxed)]->has_come_back()) {
      break;
    }
    const Clock::time_point now = Clock::now();
    if (silent_since == Clock::time_point{}) {
      silent_since = now;
    } else if (now - silent_since >= kPatience) {
      break;
    }
  }
  return total;
}

/// Callbacks may call this again: what has been taken off a completion queue and is not handled yet goes first then, so
/// that the order stays, and it lies in one place however deep the calls are.
int PacketPath::progress() noexcept {
  ++epoch_;
  const CompletionQueueSet& completion_queues = *queues_.completion_queues;
  if (first_to_post_ != nullptr || batch_next_ < batch_end_ || !ringed_.empty() || completion_queues.count() != 1 ||
      is_short_of_buffers()) [[unlikely]] {
    return progress_everything();
  }
  const int total = poll(completion_queues.queue(0));
  if (is_more_to_do_) [[unlikely]] {
    do_the_rest();
  }
  return total;
}

/// The same where more may be due than one completion queue holds.
int PacketPath::progress_everything() noexcept {
  if (first_to_post_ != nullptr) [[unlikely]] {
    post_packets();  // before their completions are looked for: the progress thread may have posted some
  }
  int total = batch_next_ < batch_end_ ? take_batch() : 0;
  if (!ringed_.empty()) [[unlikely]] {
    total += poll_rings();
  }
  total += poll_all();
  if (const unsigned left = short_of_buffers_.load(std::memory_order_relaxed); left > 0) [[unlikely]] {
    short_of_buffers_.store(left - 1, std::memory_order_relaxed);
    total += poll_for_buffers();
  }
  if (is_more_to_do_) [[unlikely]] {
    do_the_rest();
  }
  return total;
}

namespace {

/// The message is in our memory, but in no fragment: an upper layer sees only these fields.
[[gnu::always_inline]] inline void deliver_bare(PacketPath& path, const UpperHandles& upper,
                                                std::span<std::byte> message, mca_btl_base_tag_t tag) noexcept {
  ++path.counters().messages_received;
  path.counters().bytes_received += message.size();
  Fragment fragment;
  fragment.des_segments = fragment.segments;
  fragment.des_segment_count = 1;
  fragment.des_flags = 0;
  fragment.segments[0].seg_addr.pval = message.data();
  fragment.segments[0].seg_len = message.size();
  const mca_btl_active_message_callback_t& receiver = path.settings().receivers[tag];
  if (receiver.cbfunc != nullptr) [[likely]] {
    hand_over(receiver, upper.module, upper.endpoint, tag, fragment);
  }
}

}  // namespace

void PacketPath::deliver_from_ring(LinkQueue& queue, std::span<std::byte> message, mca_btl_base_tag_t tag) noexcept {
  deliver_bare(*this, queue.link.upper(), message, tag);
}

bool deliver_for(PacketPath& path, const UpperHandles& upper, std::span<std::byte> body, mca_btl_base_tag_t tag,
                 bool several) noexcept {
  if (!several) {
    deliver_bare(path, upper, body, tag);
    return true;
  }
  while (!body.empty()) {
    RecordHeader record;
    if (!record.read(body.data(), body.size())) {
      return false;
    }
    deliver_bare(path, upper, body.subspan(RecordHeader::kSize, record.size), record.tag);
    body = body.subspan(RecordHeader::room_for(record.size));  // read() has seen that it is there
  }
  return true;
}

/// Each of the messages, in order, whatever becomes of the link meanwhile: all have come.
void PacketPath::deliver_several(LinkQueue& queue, Fragment& fragment, std::uint32_t length) noexcept {
  std::byte* at = fragment.packet + PacketHeader::kSize;
  std::size_t left = length - PacketHeader::kSize;
  while (left > 0) {
    RecordHeader record;
    if (!record.read(at, left)) [[unlikely]] {
      bad_packet(queue, {fragment.packet, length});
      return;
    }
    deliver_message(queue, fragment, at + RecordHeader::kSize, record.size, record.tag);
    at += RecordHeader::room_for(record.size);
    left -= RecordHeader::room_for(record.size);
  }
}

/// What the component itself says to its peer. Of rings and goodbyes: what the peer has written into a ring before is taken first.
void PacketPath::deliver_to_link(LinkQueue& queue, PacketKind kind, std::span<const std::byte> packet) noexcept {
  Link& link = queue.link;
  const std::span<const std::byte> body = packet.subspan(PacketHeader::kSize);
  bool is_good = true;
  queue.counts->taken += is_counted(kind) ? 1 : 0;
  if (kind == PacketKind::kAtomic) {
    is_good = take_atomic(queue, body);
  } else if (kind == PacketKind::kAtomicReply) {
    is_good = take_atomic_reply(queue, body);
  } else if (kind == PacketKind::kDetour) {
    // In a receive buffer: the upper layer may write there.
    is_good = events().detour_arrived(link, {const_cast<std::byte*>(body.data()), body.size()});
  } else if (link.ring_in_.is_open()) {
    (void)link.take_from_ring();
  }
  if (kind == PacketKind::kGoodbye && link.hear_goodbye(queue, packet.data(), packet.size())) {
    events().goodbye_arrived(link);
  } else if (kind == PacketKind::kRest) {
    is_good = !link.is_xrc_;
    if (is_good && LinkRest(link).hear(queue)) {
      events().rest_asked(link);
    }
  } else if (kind == PacketKind::kStay) {
    is_good = LinkRest(link).has_asked();
    if (is_good) {
      events().rest_declined(link);
    }
  } else if (kind == PacketKind::kCounts) {
    events().counts_arrived(link, body);
  } else if (kind == PacketKind::kRing) {
    is_good = &queue == &link.ring_queue() && link.take_offer(body.data(), body.size());
  } else if (kind == PacketKind::kRingLeft) {
    is_good = &queue == &link.ring_queue() && link.ring_left();
  }
  if (!is_good) {
    bad_packet(queue, packet);
  }
}

void PacketPath::send_completed(const ibv_wc& completion) noexcept {
  if (tag_of(completion.wr_id) == SendTag::kSharedBatch) [[unlikely]] {
    SharedSendQueue& sends = object_of<SendShare>(completion.wr_id)->sends;
    sends.tx.completed(sends.batches.pop(), static_cast<SendQueue*>(&sends));
    if (sends.kept() != nullptr) {
      sends.kept()->batch_arrived(sends.tx.used() == 0);
    }
    sends.serve();
    return;
  }
  if (tag_of(completion.wr_id) == SendTag::kRdma) {
    auto* request = object_of<RdmaRequest>(completion.wr_id);
    Link& link = *request->link;
    link.rdma().completed(request, true);
    room_freed(link.rdma_queue());
    return;
  }
  if (tag_of(completion.wr_id) == SendTag::kRdmaPart) {
    return;  // it completes only when it fails
  }
  LinkQueue& queue = send_queue(completion.wr_id);
  switch (tag_of(completion.wr_id)) {
    case SendTag::kFragment: {
      Fragment* fragment = object_of<Fragment>(completion.wr_id);
      queue.sends->tx.completed(fragment->carried, fragment);
      --queue.in_flight;
      fragment->posted_on = nullptr;
      end_send(queue.link.upper(), fragment, OPAL_SUCCESS);
      break;
    }
    case SendTag::kBatch:
      queue.own_sends.tx.completed(queue.own_sends.batches.pop(), &queue.own_sends);
      if (queue.kept != nullptr) {
        queue.kept->batch_arrived(queue.own_sends.tx.used() == 0);
      }
      break;
    case SendTag::kDrain:
      queue.drained = true;
      return;
    case SendTag::kRdma:
    case SendTag::kRdmaPart:
    case SendTag::kCts:
    case SendTag::kHandshake:
    case SendTag::kSharedBatch:
      return;
  }
  room_freed(queue);
}

/// Whoever waits for it goes on.
void PacketPath::room_freed(LinkQueue& queue) noexcept {
  if (queue.share != nullptr) [[unlikely]] {
    queue.share->sends.serve();
    return;
  }
  if (!queue.waiting.empty() || (!queue.is_shared && queue.credits.explicit_due())) {
    queue.link.send_waiting(queue);
  }
  if (queue.link.rdma().has_waiting()) {
    queue.link.rdma().send_waiting();
  }
}

// ---- Atomics that come as messages

bool PacketPath::take_atomic(LinkQueue& queue, std::span<const std::byte> body) noexcept {
  AtomicMessage message;
  if (!message.read(body.data(), body.size())) {
    return false;
  }
  queue.link.reply(execute(message));
  return true;
}

bool PacketPath::take_atomic_reply(LinkQueue& queue, std::span<const std::byte> body) noexcept {
  if (const Link::State state = queue.link.state(); state == Link::State::kFailed || state == Link::State::kClosed) {
    return true;  // it was on its way when the link failed, and whoever waited for it has been told
  }
  AtomicReply reply;
  return reply.read(body.data(), body.size()) && queue.link.rdma().replied(reply);
}

}  // namespace fabric
