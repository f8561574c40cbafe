// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints with links that have broken: what is heard of them, and for how long they are waited for.
#include <algorithm>

#include "btl_fabric/peer/endpoint_healing.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

PeerCounts& Endpoints::counts_with(const ProcessName& peer, std::size_t count) {
  PeerCounts& counts = counts_[peer];
  if (counts.queues == nullptr) {
    counts.queues = std::make_unique<PacketCounts[]>(count);
  }
  return counts;
}

bool Endpoints::is_being_closed(const cpc::ConnectionKey& key) const noexcept {
  return closing_.find(key.peer, [&](const Endpoint& one) { return one.key() == key; }) != nullptr;
}

void Endpoints::begin_healing(Endpoint& endpoint) {
  healing_.push_back(&endpoint);
  has_chores_ = true;
}

void Endpoints::end_healing(Endpoint& endpoint) noexcept {
  std::erase(healing_, &endpoint);
}

/// What the peer does not answer in time is given up, and who waits to connect again does when it is time.
void Endpoints::watch_healing() {
  if (healing_.empty()) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < healing_.size(); ++i) {
    Endpoint& endpoint = *healing_[i];
    guarded(&endpoint, [&] { endpoint.go_on_connecting(now); });
  }
  for (std::size_t i = 0; i < healing_.size(); ++i) {
    Endpoint& endpoint = *healing_[i];
    guarded(&endpoint, [&] { endpoint.go_on_detour(now); });
  }
  const auto late = std::find_if(healing_.begin(), healing_.end(), [this](const Endpoint* one) {
    return one->healing_->has_broken && one->has_healed_for(heal_timeout_) && !one->waits_for_a_peer_that_is_there() &&
           !(is_lost() && way_beside(*one) != nullptr);
  });
  if (late != healing_.end()) {
    Endpoint& endpoint = **late;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(heal_timeout_).count();
    endpoint.give_up_healing("It could not be made anew within " + std::to_string(seconds) +
                             " seconds (btl_fabric_heal_timeout)");
  }
}

void Endpoints::counts_arrived(Link& link, std::span<const std::byte> counts) noexcept {
  Endpoint& endpoint = static_cast<EndpointLink&>(link).endpoint;
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.hear_counts(link, counts); });
  }
}

bool Endpoints::detour_arrived(Link& link, std::span<std::byte> body) noexcept {
  Endpoint& way = static_cast<EndpointLink&>(link).endpoint;
  DetourHeader header;
  if (!header.read(body.data(), body.size())) {
    return false;
  }
  Endpoint* const meant = services_.endpoint_through(header.to_port, way.key().peer);
  if (meant == nullptr) {
    return true;  // Open MPI has taken it away
  }
  if (meant->key().remote_port != header.from_port || meant->owner().number_of_context() != number_) {
    return false;
  }
  const std::span<std::byte> rest = body.subspan(DetourHeader::kSize);
  bool is_good = true;
  meant->owner_.guarded(meant, [&] {
    switch (header.what) {
      case DetourHeader::What::kCounts:
      case DetourHeader::What::kCountsAndYours:
        is_good = meant->hear_counts_aside(rest, header.what == DetourHeader::What::kCountsAndYours);
        break;
      case DetourHeader::What::kAtomic:
        is_good = meant->hear_atomic_aside(way, rest);
        break;
      case DetourHeader::What::kAtomicReply:
        is_good = meant->hear_reply_aside(rest);
        break;
      case DetourHeader::What::kMessage:
      case DetourHeader::What::kMessages:
        is_good = deliver_for(meant->owner_.path(), meant->upper(), rest, header.tag,
                              header.what == DetourHeader::What::kMessages);
        break;
    }
  });
  return is_good;
}

void Endpoints::resent(Link& link) noexcept {
  Endpoint& endpoint = static_cast<EndpointLink&>(link).endpoint;
  if (endpoint.is_current(link)) {
    guarded(&endpoint, [&] { endpoint.apply(EndpointEvent::kResumed); });
  }
}

void Endpoints::report_healed(const Endpoint& endpoint, const std::string& why, std::chrono::milliseconds took,
                              std::uint64_t resent) noexcept try {
  ++path_->counters().connections_healed;
  services_.report_healed(endpoint, why + ": made anew after " + std::to_string(took.count()) + " ms, " +
                                        std::to_string(resent) + " packets sent again");
} catch (const std::bad_alloc&) {  // nobody needs it
}

}  // namespace fabric
