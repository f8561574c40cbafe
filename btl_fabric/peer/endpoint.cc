// SPDX-License-Identifier: BSD-3-Clause
//
// Set-up and teardown of an endpoint.
#include "btl_fabric/peer/endpoint.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <new>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/path/shared_send_queue.h"

namespace fabric {

Endpoint::Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts, Endpoint* face)
    : module_(module),
      face_(face != nullptr ? face : this),
      contexts_(contexts),
      behind_(contexts > 1 ? std::make_unique<std::atomic<Endpoint*>[]>(contexts) : nullptr),
      proc_(proc),
      key_(key),
      target_(std::move(target)),
      spoke_(cpc::exchanges_cts(target_.cpc) || target_.cpc == CpcKind::kXoob),
      exchanges_cts_(cpc::exchanges_cts(target_.cpc)),
      is_xrc_(target_.cpc == CpcKind::kXoob),
      rdma_(*this, module, make_queues()) {}

Endpoint::Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target,
                   unsigned contexts)
    : Endpoint(module, proc, key, std::move(target), contexts, nullptr) {}

Endpoint::Endpoint(Module& module, const cpc::ConnectionKey& key, cpc::PeerTarget target, Endpoint& face)
    : Endpoint(module, face.proc(), key, std::move(target), 1, &face) {
  face.alive_behind_.fetch_add(1, std::memory_order_relaxed);
  face.behind_[module.number_of_context()].store(this, std::memory_order_release);
}

Endpoint::~Endpoint() {
  assert(alive_behind_.load(std::memory_order_relaxed) == 0);
  if (face_ != this) {
    face_->alive_behind_.fetch_sub(1, std::memory_order_release);
  }
}

Endpoint* Endpoint::in_context(unsigned number) noexcept try {
  Endpoint* known = if_in_context(number);
  return known != nullptr ? known : module_.in_context(number).endpoint_behind(*this);
} catch (const std::bad_alloc&) {
  return nullptr;
}

EndpointQueue& Endpoint::make_queues() {
  const ReceiveQueues& specs = module_.receive_queues();
  for (std::size_t i = 0; i < specs.count(); ++i) {
    queues_.emplace_back(*this, static_cast<std::uint8_t>(i), specs[i], module_.receive_pool(i), module_.max_inline(),
                         is_xrc_ ? QueueSpace::for_operations(0, {}, cpc::kSendSges, 0) : module_.send_space(i));
  }
  return rdma_queue();
}

EndpointQueue& Endpoint::rdma_queue() noexcept {
  return queues_[cpc::rdma_queue(module_.receive_queues())];
}

void Endpoint::want_connection() {
  const cpc::Direction direction = is_xrc_ ? cpc::Direction::kOutgoing : cpc::Direction::kBoth;
  if (module_.is_closing(key(direction))) {
    return;  // the last connection with this peer is still being taken down; closed() asks again
  }
  state_ = State::kConnecting;
  if (module_.is_self(*this)) {
    module_.connect_self();
    return;
  }
  opened(direction);
  module_.connections().submit(cpc::Connect{key(direction), target_});
}

Status Endpoint::post_receives(const std::vector<ibv_qp*>& queue_pairs) {
  state_ = State::kConnecting;
  for (EndpointQueue& queue : queues_) {
    queue.qp = queue_pairs[queue.index];
    queue.own_sends.qp = queue.qp;
    module_.add_queue_pair(queue);
    if (queue.is_shared) {
      if (auto started = module_.shared_queue(queue.index).start(); !started) {
        return started;
      }
      continue;
    }
    refill(queue);
    // All of them are promised to the peer, so all must be there.
    if (queue.receives.posted() < queue.credits.depth()) {
      return failure("only " + std::to_string(queue.receives.posted()) + " of " +
                     std::to_string(queue.credits.depth()) + " receive buffers of " +
                     std::to_string(module_.receive_queues()[queue.index].size) + " bytes could be posted; " +
                     memlock_hint());
    }
  }
  return {};
}

void Endpoint::connected(std::vector<cpc::QueuePairEnd> remote_ends) {
  remote_ends_ = std::move(remote_ends);
  state_ = State::kConnected;
  ++module_.counters().connections_made;
  spoke_ = true;
  send_all_waiting();
}

void Endpoint::connected(const cpc::XrcPath& path, SharedSendQueue& sends, std::vector<cpc::QueuePairEnd> remote_ends) {
  SendShare& share = sends.add(*this);
  for (EndpointQueue& queue : queues_) {
    queue.share = &share;
    queue.sends = &sends;
    queue.batch_id = reinterpret_cast<std::uintptr_t>(&share) | static_cast<std::uint64_t>(SendTag::kSharedBatch);
    queue.remote_srqn = path.srq_numbers[queue.index];
  }
  connected(std::move(remote_ends));
}

void Endpoint::send_all_waiting() {
  while (!waiting_.empty()) {
    Fragment* fragment = waiting_.pop_front();
    queues_[fragment->queue].waiting.push_back(fragment);
    send_waiting(queues_[fragment->queue]);
  }
  for (EndpointQueue& queue : queues_) {
    send_waiting(queue);
  }
  rdma_.connected();
}

void Endpoint::connected_to_self(ibv_qp* queue_pair) noexcept {
  rdma_queue().qp = queue_pair;
  rdma_queue().own_sends.qp = queue_pair;
  state_ = State::kSelf;
  rdma_.connected();
}

void Endpoint::peer_spoke() {
  if (!spoke_) {
    spoke_ = true;
    module_.connections().submit(cpc::PeerSpoke{key_});
  }
}

void Endpoint::opened(cpc::Direction direction) noexcept {
  if (!has(direction)) {
    way(direction) = Way::kOpen;
  }
}

void Endpoint::give_up(cpc::Direction direction, const std::string& reason) {
  if (way(direction) == Way::kOpen) {
    way(direction) = Way::kClosing;
    module_.connections().submit(cpc::Close{key(direction), reason});
  }
}

void Endpoint::give_up(const std::string& reason) {
  for (const cpc::Direction direction : kDirections) {
    give_up(direction, reason);
  }
}

void Endpoint::flushed(cpc::Direction direction) {
  way(direction) = Way::kFlushed;
  if (state_ == State::kClosing && direction == cpc::Direction::kBoth) {
    post_drain_markers();
  }
}

void Endpoint::destroy() {
  for (const cpc::Direction direction : kDirections) {
    if (has(direction)) {
      module_.connections().submit(cpc::Destroy{key(direction)});
    }
  }
}

void Endpoint::leave_lines() noexcept {
  for (EndpointQueue& queue : queues_) {
    if (queue.share != nullptr) {
      queue.share->sends.leave(queue);
    }
  }
}

void Endpoint::fail() noexcept {
  state_ = State::kFailed;
  leave_lines();
}

void Endpoint::fail_waiting() noexcept {
  rdma_.abort();
  const auto fail_all = [this](FragmentQueue& waiting) {
    while (!waiting.empty()) {
      module_.send_ended(waiting.pop_front(), OPAL_ERR_UNREACH);
    }
  };
  fail_all(waiting_);
  for (EndpointQueue& queue : queues_) {
    fail_all(queue.waiting);
  }
}

void Endpoint::close(const std::string& reason) {
  state_ = State::kClosing;
  const auto drop = [this](FragmentQueue& waiting) {
    while (!waiting.empty()) {
      module_.put_back(waiting.pop_front());
    }
  };
  drop(waiting_);
  for (EndpointQueue& queue : queues_) {
    drop(queue.waiting);
  }
  leave_lines();
  rdma_.abort();
  give_up(reason);
  if (way(cpc::Direction::kBoth) == Way::kFlushed) {
    post_drain_markers();  // it had failed before
  }
}

/// Asks for completions that come after all others.
void Endpoint::post_drain_markers() {
  for (EndpointQueue& queue : queues_) {
    // A queue pair that takes no more requests gives no more completions either.
    queue.drained = queue.qp == nullptr || !queue.post_drain_marker();
  }
}

bool Endpoint::is_drained() const noexcept {
  if (alive_behind_.load(std::memory_order_acquire) > 0) {
    return false;  // their callbacks name this one
  }
  const bool answered =
      std::all_of(ways_.begin(), ways_.end(), [](Way way) { return way == Way::kNone || way == Way::kFlushed; });
  if (is_xrc_) {  // a shared queue pair takes no marker, but what it has of ours is counted
    return answered && rdma_.in_flight() == 0 &&
           std::all_of(queues_.begin(), queues_.end(), [](const EndpointQueue& queue) { return queue.in_flight == 0; });
  }
  return answered && std::all_of(queues_.begin(), queues_.end(), [](const EndpointQueue& queue) {
           return queue.qp == nullptr || (queue.drained && queue.receives.posted() == 0);
         });
}

std::string Endpoint::describe_queue(std::uint32_t qpn) const {
  for (const EndpointQueue& queue : queues_) {
    if (queue.sends->qp == nullptr || queue.sends->qp->qp_num != qpn) {
      continue;
    }
    char text[64];
    if (is_xrc_ && !remote_ends_.empty()) {
      std::snprintf(text, sizeof text, "X queues, QPN 0x%06x -> 0x%06x", qpn, remote_ends_[0].qpn);
    } else if (queue.index < remote_ends_.size()) {
      std::snprintf(text, sizeof text, "queue %u, QPN 0x%06x -> 0x%06x", unsigned{queue.index}, qpn,
                    remote_ends_[queue.index].qpn);
    } else {
      std::snprintf(text, sizeof text, "queue %u, QPN 0x%06x", unsigned{queue.index}, qpn);
    }
    return text;
  }
  if (target_qpn_ != 0 && target_qpn_ == qpn) {
    char text[64];
    std::snprintf(text, sizeof text, "X queues, messages that come in through QPN 0x%06x", qpn);
    return text;
  }
  return "no queue pair";
}

}  // namespace fabric
