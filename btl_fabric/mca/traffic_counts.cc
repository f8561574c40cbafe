// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/traffic_counts.h"

#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/peer_traffic.h"

namespace fabric {

namespace {

TrafficCounts counts;

}  // namespace

void TrafficCounts::count(std::span<const std::unique_ptr<Module>> modules) noexcept {
  watch_calls(modules, counts);
}

/// Null: nobody counts what goes to the peer.
PeerTraffic* TrafficCounts::traffic_to(const Endpoint* endpoint) noexcept {
  return endpoint != nullptr ? endpoint->traffic_.get() : nullptr;
}

void TrafficCounts::sent(const Endpoint* endpoint, std::size_t bytes) noexcept {
  if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr) {
    traffic->messages.add(1);
    traffic->message_bytes.add(bytes);
  }
}

void TrafficCounts::put(const Endpoint* endpoint, std::size_t bytes) noexcept {
  if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr) {
    traffic->puts.add(1);
    traffic->put_bytes.add(bytes);
  }
}

void TrafficCounts::got(const Endpoint* endpoint, std::size_t bytes) noexcept {
  if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr) {
    traffic->gets.add(1);
    traffic->get_bytes.add(bytes);
  }
}

void TrafficCounts::operated(const Endpoint* endpoint) noexcept {
  if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr) {
    traffic->atomics.add(1);
  }
}

}  // namespace fabric
