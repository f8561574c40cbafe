// SPDX-License-Identifier: BSD-3-Clause
//
// Set-up and teardown of an endpoint.
#include "btl_fabric/endpoint.h"

#include <algorithm>
#include <cstdio>

#include "btl_fabric/component.h"
#include "btl_fabric/counters.h"
#include "btl_fabric/module.h"

namespace fabric {

Endpoint::Endpoint(Module& module, opal_proc_t* proc, const cpc::ConnectionKey& key, cpc::PeerTarget target)
    : module_(module),
      proc_(proc),
      key_(key),
      target_(std::move(target)),
      spoke_(cpc::exchanges_cts(target_.cpc)),
      exchanges_cts_(cpc::exchanges_cts(target_.cpc)),
      rdma_(*this, module, make_queues()) {}

EndpointQueue& Endpoint::make_queues() {
  const ReceiveQueues& specs = module_.receive_queues();
  for (std::size_t i = 0; i < specs.count(); ++i) {
    queues_.emplace_back(*this, static_cast<std::uint8_t>(i), specs[i], module_.receive_pool(i), module_.max_inline(),
                         module_.send_space(i));
  }
  return rdma_queue();
}

EndpointQueue& Endpoint::rdma_queue() noexcept {
  return queues_[cpc::rdma_queue(module_.receive_queues())];
}

void Endpoint::want_connection() {
  if (module_.is_closing(key_)) {
    return;  // the last connection with this peer is still being taken down; closed() asks again
  }
  state_ = State::kConnecting;
  if (module_.is_self(*this)) {
    module_.connect_self();
    return;
  }
  module_.connections().submit(cpc::Connect{key_, target_});
}

Status Endpoint::post_receives(const std::vector<ibv_qp*>& queue_pairs) {
  state_ = State::kConnecting;
  for (EndpointQueue& queue : queues_) {
    queue.qp = queue_pairs[queue.index];
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
  ++counters.connections_made;
  spoke_ = true;
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
  state_ = State::kSelf;
  rdma_.connected();
}

void Endpoint::peer_spoke() {
  if (!spoke_) {
    spoke_ = true;
    module_.connections().submit(cpc::PeerSpoke{key_});
  }
}

void Endpoint::close(const std::string& reason) {
  const bool has_connection = state_ != State::kIdle;
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
  rdma_.abort();
  if (has_connection) {
    module_.connections().submit(cpc::Close{key_, reason});
  } else {
    draining_ = true;
  }
}

void Endpoint::drain() {
  draining_ = true;
  for (EndpointQueue& queue : queues_) {
    // A queue pair that takes no more requests gives no more completions either.
    queue.drained = queue.qp == nullptr || !queue.post_drain_marker();
  }
}

bool Endpoint::is_drained() const noexcept {
  return draining_ && std::all_of(queues_.begin(), queues_.end(), [](const EndpointQueue& queue) {
           return queue.qp == nullptr || (queue.drained && queue.receives.posted() == 0);
         });
}

std::string Endpoint::describe_queue(std::uint32_t qpn) const {
  for (const EndpointQueue& queue : queues_) {
    if (queue.qp == nullptr || queue.qp->qp_num != qpn) {
      continue;
    }
    char text[64];
    if (queue.index < remote_ends_.size()) {
      std::snprintf(text, sizeof text, "queue %u, QPN 0x%06x -> 0x%06x", unsigned{queue.index}, qpn,
                    remote_ends_[queue.index].qpn);
    } else {
      std::snprintf(text, sizeof text, "queue %u, QPN 0x%06x", unsigned{queue.index}, qpn);
    }
    return text;
  }
  return "no queue pair";
}

}  // namespace fabric
