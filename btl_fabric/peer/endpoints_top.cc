// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/endpoints_top.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "btl_fabric/path/link_description.h"
#include "btl_fabric/peer/peer_traffic.h"

namespace fabric {

namespace {

/// What a packet costs beside its bytes, as bytes.
constexpr std::uint64_t kPacket = 64;

std::uint64_t weight_of(const top::Flow& flow) noexcept {
  return flow.bytes_sent + flow.put_bytes + flow.get_bytes +
         kPacket * (flow.messages_sent + flow.packets_received + flow.puts + flow.gets + flow.atomics);
}

}  // namespace

/// What has come since the last look. The count goes round, and where links are not made anew it begins with each.
void EndpointsTop::take_packets(const Endpoint& endpoint) {
  PeerTraffic& traffic = *endpoint.traffic_;
  std::uint32_t taken = 0;
  if (endpoint.counts_ != nullptr) {
    for (const PacketCounts& queue : endpoint.counts()) {
      taken += queue.taken;
    }
  } else if (endpoint.link_ != nullptr) {
    taken = LinkDescription(*endpoint.link_).packets_taken();
  }
  const bool is_anew = endpoint.counts_ == nullptr && taken < traffic.taken;
  traffic.packets_received += taken - (is_anew ? 0 : traffic.taken);
  traffic.taken = taken;
}

/// Packets come in the context that they were sent to; what Open MPI has given to be sent is counted in the first.
EndpointsTop::Look EndpointsTop::look_at(Endpoint& endpoint, std::uint32_t port) {
  Look look;
  look.endpoint = &endpoint;
  look.port = port;
  for (unsigned context = 0; context < endpoint.contexts_; ++context) {
    const Endpoint* const one = endpoint.if_in_context(context);
    if (one == nullptr || one->traffic_ == nullptr) {
      continue;
    }
    take_packets(*one);
    look.now.packets_received += one->traffic_->packets_received;
    look.now.packets_resent += one->traffic_->packets_resent;
    look.waits = look.waits || one->has_waiting();
  }
  endpoint.traffic_->add_calls_to(look.now);
  look.before = std::exchange(endpoint.traffic_->before, look.now);
  look.total = weight_of(look.now);
  look.recent = look.total - weight_of(look.before);
  return look;
}

void EndpointsTop::take(Endpoints& endpoints) {
  const auto guard = endpoints.known_guard();
  for (const auto& [name, endpoint] : endpoints.endpoints_) {
    if (endpoint->traffic_ != nullptr) {
      all_.push_back(look_at(*endpoint, ports_));
    }
  }
  ++ports_;
}

std::uint32_t EndpointsTop::write(std::span<top::Peer> rows) {
  const std::size_t count = std::min(rows.size(), all_.size());
  std::partial_sort(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(count), all_.end(),
                    [](const Look& one, const Look& other) {
                      return std::tie(one.waits, one.recent, one.total) >
                             std::tie(other.waits, other.recent, other.total);
                    });
  for (std::size_t i = 0; i < count; ++i) {
    describe(all_[i], rows[i]);
  }
  return static_cast<std::uint32_t>(count);
}

void EndpointsTop::describe(const Look& look, top::Peer& row) {
  const Endpoint& first = *look.endpoint;
  row = {};
  row.now = look.now;
  row.before = look.before;
  row.job = first.key_.peer.job;
  row.rank = first.key_.peer.rank;
  row.port = look.port;
  row.remote_port = first.key_.remote_port;
  row.state.set(to_string(first.state_));
  row.method.set(first.target_.cpc.name);
  for (unsigned context = 0; context < first.contexts_; ++context) {
    const Endpoint* const one = look.endpoint->if_in_context(context);
    if (one == nullptr) {
      continue;
    }
    row.heals += one->traffic_ != nullptr ? one->traffic_->heals : 0;
    row.wait_for_connection += count_of(one->waiting_, kMostWaiting) + one->waiting_rdma_.count();
    if (one->link_ != nullptr) {
      LinkDescription(*one->link_).add_to(row);
    }
  }
}

}  // namespace fabric
