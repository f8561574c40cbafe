// SPDX-License-Identifier: BSD-3-Clause
//
// Set-up and teardown of a link, and its receives.
#include "btl_fabric/path/link.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "btl_fabric/path/link_healing.h"
#include "btl_fabric/path/link_rest.h"
#include "btl_fabric/path/packet_path.h"
#include "btl_fabric/path/path_events.h"
#include "btl_fabric/path/shared_send_queue.h"

namespace fabric {

Link::Link(PacketPath& path, const UpperHandles& upper, const QueueSubset& subset, bool is_xrc)
    : path_(path),
      upper_(upper),
      subset_(subset),
      is_xrc_(is_xrc),
      early_(path.early_packets().first()),
      queues_(subset.count()),
      rdma_(*this, path, make_queues()) {
  static_assert(sizeof(Link) <= cpc::kConnectionBytes && sizeof(LinkQueue) <= cpc::kQueueBytes);
  memory_.add(cpc::connection_memory());
}

Link::~Link() {
  if (is_watched_) {
    path_.watch()->remove(watched_);
  }
  if (ring_in_.is_open()) {
    path_.remove_ring(*this);
    path_.rings().put(ring_in_.close());
  }
  path_.forget(*this);
  for (LinkQueue& queue : queues_) {
    path_.remove_borrower(queue.own_sends);
  }
  if (SendShare* const share = queues_.front().share; share != nullptr) {
    share->link = nullptr;
  }
}

/// Gives the queue for reads, writes and atomics.
LinkQueue& Link::make_queues() {
  const PathSettings& settings = path_.settings();
  for (std::size_t place = 0; place < subset_.count(); ++place) {
    const std::size_t index = subset_.index(place);
    queues_.emplace_back(*this, static_cast<std::uint8_t>(index), subset_.queues()[place], path_.receive_pool(index),
                         settings.heals && is_xrc_ ? 0 : settings.max_inline, send_space(place), settings.costs);
  }
  if (settings.heals && settings.max_inline > 0) {
    for (LinkQueue& queue : queues_) {
      if (is_xrc_) {
        ring_out_.stand_in(settings.max_inline - PacketHeader::kSize);
        continue;
      }
      const auto entries = static_cast<std::size_t>(queue.own_sends.tx.space().entries());
      queue.own_kept = std::make_unique<KeptPackets>(entries + SendQueue::kMostBatch, settings.max_inline);
      queue.kept = queue.own_kept.get();
      queue.own_sends.has_whole_batches = true;
    }
  }
  smallest_ = &queue(path_.smallest_queue());
  coalescing_ = &queue(path_.coalescing_queue());
  rdma_queue_ = &queues_[cpc::rdma_queue(subset_.queues())];
  if (!is_xrc_ && path_.settings().eager_rdma != EagerRdma::kOff) {
    ring_queue().until_ring = path_.settings().eager_rdma_threshold;
  }
  return rdma_queue();
}

/// Of the queue pair of a queue. X queues send through one that all share.
QueueSpace Link::send_space(std::size_t place) const noexcept {
  const PathSettings& settings = path_.settings();
  return is_xrc_ ? QueueSpace::for_operations(0, {}, cpc::kSendSges, 0)
                 : cpc::send_space(subset_.queues(), place, settings.costs, settings.max_inline, settings.rdma_depth);
}

bool Link::uses(std::uint32_t qpn) const noexcept {
  return target_qpn_ == qpn || std::any_of(queues_.begin(), queues_.end(), [qpn](const LinkQueue& queue) {
           return queue.qpn == qpn || (queue.share != nullptr && queue.sends->qp->qp_num == qpn);
         });
}

/// X queues all send through one queue pair.
std::uint64_t Link::tx_size_left() const noexcept {
  if (is_xrc_) {
    return queues_.front().sends->tx.size_left_seen();
  }
  std::uint64_t sum = 0;
  for (const LinkQueue& queue : queues_) {
    sum += queue.sends->tx.size_left_seen();
  }
  return sum;
}

std::uint64_t Link::rx_size_left() const noexcept {
  std::uint64_t sum = 0;
  for (const LinkQueue& queue : queues_) {
    sum += queue.is_shared ? path_.shared_queue(queue.index).rx_size_left_seen() : queue.receives.rx_size_left_seen();
  }
  return sum;
}

Status Link::post_receives(const std::vector<ibv_qp*>& queue_pairs) {
  if (queue_pairs.size() != queues_.size()) {
    return failure("the peer wants a connection of " + std::to_string(queue_pairs.size()) +
                   " queues, and by its modex of " + std::to_string(queues_.size()));
  }
  const cpc::QueuePairSettings settings = queue_pair_settings(path_.settings());
  auto next = queue_pairs.begin();
  for (LinkQueue& queue : queues_) {
    queue.qp = *next++;
    queue.own_sends.qp = queue.qp;
    path_.add_borrower(queue.own_sends);
    path_.add_queue_pair(queue.qp->qp_num, queue);
    queue.qpn = queue.qp->qp_num;
    memory_.add(
        cpc::queue_memory(subset_.queues(), subset_.place(queue.index), path_.settings().rdma_limits.link, settings));
    if (queue.is_shared) {
      auto started = path_.start_shared_queue(queue.index);
      if (!started && !(path_.shared_queue(queue.index).device_is_gone() && is_of_lost_device(*this, EIO))) {
        return started;
      }
      continue;
    }
    refill(queue);
    // All of them are promised to the peer, so all must be there.
    if (queue.receives.posted() < queue.credits.depth()) {
      return failure("only " + std::to_string(queue.receives.posted()) + " of " +
                     std::to_string(queue.credits.depth()) + " receive buffers of " +
                     std::to_string(path_.receive_queues()[queue.index].size) + " bytes could be posted; " +
                     memlock_hint());
    }
  }
  return {};
}

Status Link::receive_from(std::uint32_t target_qpn, std::uint32_t incarnation) {
  if (target_qpn_ != 0) {
    path_.remove_queue_pair(target_qpn_);
    target_qpn_ = 0;
  }
  if (target_qpn == 0) {
    return {};
  }
  is_silent_ = true;
  incoming_incarnation_ = incarnation;
  asked_incarnation_ = 0;
  for (LinkQueue& queue : queues_) {
    queue.said_goodbye = false;
  }
  if (path_.knows_queue_pair(target_qpn)) {
    return failure("another process sends through queue pair " + std::to_string(target_qpn) + " already");
  }
  path_.add_queue_pair(target_qpn, queues_.front());
  target_qpn_ = target_qpn;
  return path_.start_shared_queues();
}

void Link::share(SharedSendQueue& sends, const std::vector<std::uint32_t>& remote_srqs, std::uint32_t incarnation) {
  outgoing_incarnation_ = incarnation;
  SendShare& share = sends.add(*this);
  std::size_t place = 0;
  for (LinkQueue& queue : queues_) {
    queue.share = &share;
    queue.sends = &sends;
    queue.kept = sends.kept();
    queue.keeper = share.keeper(place);
    queue.batch_id = reinterpret_cast<std::uintptr_t>(&share) | static_cast<std::uint64_t>(SendTag::kSharedBatch);
    queue.set_remote_srqn(remote_srqs[place++]);
  }
}

void Link::stop_sending() noexcept {
  assert(is_xrc_ && is_quiet());
  leave_wait_lists();
  queues_.front().share->link = nullptr;
  for (LinkQueue& queue : queues_) {
    queue.share = nullptr;
    queue.sends = &queue.own_sends;
    queue.kept = nullptr;
  }
  state_ = State::kOpening;
}

bool Link::is_quiet() const noexcept {
  return rdma_.in_flight() == 0 && rdma_.replies_to_come() == 0 && has_no_fragments_out();
}

bool Link::has_no_fragments_out() const noexcept {
  return std::all_of(queues_.begin(), queues_.end(), [](const LinkQueue& queue) { return queue.in_flight == 0; });
}

std::size_t Link::goodbyes_under_way() const noexcept {
  std::size_t waiting = goodbyes_to_say_;
  if (state_ == State::kLeaving) {
    for (const LinkQueue& queue : queues_) {
      waiting += queue.waiting.empty() ? 0 : 1;  // nothing else waits
    }
  }
  assert(waiting <= goodbyes_out_);
  return goodbyes_out_ - waiting;
}

bool Link::carries_only_goodbyes() const noexcept {
  std::size_t fragments = 0;
  for (const LinkQueue& queue : queues_) {
    fragments += queue.in_flight;
  }
  return rdma_.in_flight() == 0 && rdma_.replies_to_come() == 0 && fragments == goodbyes_under_way();
}

void Link::set_loopback(ibv_qp* queue_pair) noexcept {
  is_to_ourselves_ = true;
  rdma_queue().qp = queue_pair;
  rdma_queue().own_sends.qp = queue_pair;
}

void Link::start(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept {
  while (!messages.empty()) {
    Fragment* fragment = messages.pop_front();
    queue(fragment->queue).waiting.push_back(fragment);
  }
  state_ = State::kUp;
  for (LinkQueue& queue : queues_) {
    send_waiting(queue);
  }
  rdma_.start(requests);
}

void Link::stop(State how) noexcept {
  assert(how != State::kOpening && how != State::kUp && how != State::kLeaving);
  take_promise_back();
  state_ = how;
  leave_wait_lists();
}

void Link::leave_wait_lists() noexcept {
  for (LinkQueue& queue : queues_) {
    if (queue.share != nullptr) {
      queue.share->sends.leave(queue);
    }
  }
  if (SendShare* const share = queues_.front().share; share != nullptr) {
    share->sends.leave(rdma_);
  }
}

void Link::end_waiting() noexcept {
  const auto end_all = [this](FragmentQueue& waiting) {
    while (!waiting.empty()) {
      Fragment* fragment = waiting.pop_front();
      if (state_ == State::kClosed || state_ == State::kLeaving) {
        goodbyes_out_ -= fragment->kind == PacketKind::kGoodbye ? 1 : 0;
        drop_send(fragment);
      } else {
        end_send(upper_, fragment, OPAL_ERR_UNREACH);
      }
    }
  };
  rdma_.abort();
  open_packet_ = nullptr;
  for (LinkQueue& queue : queues_) {
    end_all(queue.unfinished);
    end_all(queue.waiting);
  }
  goodbyes_out_ -= std::exchange(goodbyes_to_say_, 0);
  replies_.clear();
}

void Link::take_waiting(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept {
  open_packet_ = nullptr;
  for (LinkQueue& queue : queues_) {
    while (!queue.waiting.empty()) {
      Fragment* const fragment = queue.waiting.pop_front();
      if (is_about_link(fragment->kind)) {
        put_back(fragment);
      } else {
        messages.push_back(fragment);
      }
    }
  }
  rdma_.take_waiting(requests);
}

void Link::post_drain_markers() noexcept {
  for (LinkQueue& queue : queues_) {
    // A queue pair that takes no more requests gives no more completions either. Those of a device that is gone are made up.
    queue.drained = queue.qp == nullptr || path_.is_lost_ || queue.post_drain_marker() != 0;
  }
}

bool Link::has_waiting() const noexcept {
  return rdma_.outstanding() > 0 ||
         std::any_of(queues_.begin(), queues_.end(), [](const LinkQueue& queue) { return !queue.waiting.empty(); });
}

bool Link::is_drained() const noexcept {
  if (is_xrc_) {  // a shared queue pair takes no marker, but what it has of ours is counted
    return rdma_.in_flight() == 0 && has_no_fragments_out();
  }
  return std::all_of(queues_.begin(), queues_.end(), [](const LinkQueue& queue) {
    return queue.qp == nullptr || (queue.drained && queue.receives.posted() == 0);
  });
}

// ---- Receives

void Link::refill(LinkQueue& queue) noexcept {
  const std::uint32_t count = queue.credits.receives_to_post();
  if (count == 0 || (!may_post() && state_ != State::kOpening)) {
    return;
  }
  const std::uint32_t posted = queue.receives.fill(count, &queue, [&](ibv_recv_wr* first, ibv_recv_wr** refused) {
    const int error = ibv_post_recv(queue.qp, first, refused);
    return error != 0 && is_of_lost_device(*this, error) ? 0 : error;  // then they count as posted
  });
  queue.credits.posted(posted);
  if (posted < count) {
    path_.retry_later(*this);
  }
}

bool Link::take_notes(LinkQueue& queue, const PacketHeader& header) noexcept {
  if (header.is_short_of_credits()) [[unlikely]] {
    if (queue.is_shared) {
      return false;
    }
    grow(queue);
  }
  return header.ring_slots() == 0 || ring_out_.give_back(header.ring_slots());
}

/// Where there is no memory for more receives the queue stays as it is. It works with those it has, only slower.
[[gnu::cold]] void Link::grow(LinkQueue& queue) noexcept {
  const std::uint32_t wanted = queue.credits.growth();
  if (wanted == 0 || !queue.may_grow || !may_post() ||
      !path_.queues().completion_queues->extend(queue.qp->recv_cq, wanted, queue.later_room)) {
    return;
  }
  const std::uint32_t added = queue.receives.add(wanted);
  if (added < wanted) {
    queue.may_grow = false;
    queue.later_room.reduce(wanted - added);
  }
  if (added > 0) {
    ++path_.counters().receive_queues_grown;
    ++path_.counters().tally.queues[queue.index].grown;
    memory_.add(cpc::growth_memory(path_.receive_queues()[queue.index], added));
    queue.credits.grow(added);
    refill(queue);
  }
}

void Link::retry() noexcept {
  for (LinkQueue& queue : queues_) {
    if (queue.qp != nullptr && !queue.is_shared) {
      refill(queue);
      send_waiting(queue);
    }
  }
  say_last_ones();
  if (owes_counts_) {
    LinkHealing(*this).say_counts();
  }
  if (backlog_ != nullptr && state_ == State::kResuming) {
    LinkHealing(*this).send_more();
  }
  if (owes_ring_left_ && is_up()) {
    leave_ring();
  }
  if (owes_stay_ && is_up()) {
    LinkRest(*this).decline();
  }
  while (!replies_.empty()) {
    const AtomicReply first = replies_.front();
    if (!send_reply(first)) {
      if (state_ != State::kResting && state_ != State::kResuming) {
        path_.retry_later(*this);
      }
      break;
    }
    if (!replies_.empty()) {  // else the link has failed
      replies_.erase(replies_.begin());
    }
  }
  rdma_.tell_held();
  if (is_up()) {
    rdma_.send_waiting();
  }
}

}  // namespace fabric
