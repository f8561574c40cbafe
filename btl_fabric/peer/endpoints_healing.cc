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

/// What the peer does not answer in time is given up, and who waits to connect again does when it is time. Some of them in each call: it
/// takes no longer when the links of thousands have broken.
void Endpoints::watch_healing() {
  if (healing_.empty()) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const std::size_t first = next_to_watch_ < healing_.size() ? next_to_watch_ : 0;
  const std::size_t looks = std::min(healing_.size(), kMostLooks);
  const auto for_each = [&](auto look) {  // which may end the healing of some
    for (std::size_t i = 0; i < looks && !healing_.empty(); ++i) {
      Endpoint& endpoint = *healing_[(first + i) % healing_.size()];
      guarded(&endpoint, [&] { look(endpoint); });
    }
  };
  next_to_watch_ = first + looks;
  for_each([now](Endpoint& one) { one.go_on_connecting(now); });
  for_each([now](Endpoint& one) { one.go_on_detour(now); });
  for_each([this](Endpoint& one) { give_up_if_late(one); });
}

void Endpoints::give_up_if_late(Endpoint& endpoint) {
  if (!endpoint.healing_->has_broken || !endpoint.has_healed_for(heal_timeout_) ||
      endpoint.waits_for_a_peer_that_is_there() || (is_lost() && way_beside(endpoint) != nullptr)) {
    return;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(heal_timeout_).count();
  endpoint.give_up_healing("It could not be made anew within " + std::to_string(seconds) +
                           " seconds (btl_fabric_heal_timeout)");
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
