// SPDX-License-Identifier: BSD-3-Clause
//
// Connections as a cache: where there are more peers than queue pairs, the links that have been idle for longest are given up for
// those that are wanted. Their endpoints stay, and connect again when there is something to send. How the two sides agree is in
// btl_fabric/path/link_rest.h and endpoint_table.h; who waits for queue pairs, in cpc/manager/connections_room.cc.
#include <algorithm>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {
namespace {

/// A link must have been left alone for a while to count as idle; and whoever declines is not asked again at once.
constexpr std::chrono::microseconds kRound{200};
/// Rounds after which others are asked too: a process that computes answers nothing. The more are silent, the longer it takes until
/// the next one is asked, for what is sent to those has to wait.
constexpr std::uint64_t kPatience = 10;
constexpr std::size_t kMostDoublings = 10;

}  // namespace

void Endpoints::on(const cpc::RoomWanted& upcall) noexcept {
  links_wanted_ = upcall.connections;
  has_chores_ = has_chores_ || links_wanted_ > 0;
}

std::size_t Endpoints::links_going() const noexcept {
  std::size_t count = 0;
  for (const EndpointLink* one = ending_.get(); one != nullptr; one = one->next.get()) {
    ++count;
  }
  const auto guard = known_guard();
  const auto asked_within = [this](const Endpoint& endpoint, std::uint64_t rounds) {
    return endpoint.state() == EndpointState::kResting && idle_round_ - endpoint.last_used() < rounds;
  };
  std::size_t silent = 0;
  for (const auto& [name, endpoint] : endpoints_) {
    silent += endpoint->state() == EndpointState::kResting && !asked_within(*endpoint, kPatience) ? 1 : 0;
  }
  const std::uint64_t patience = kPatience << std::min(silent / links_wanted_, kMostDoublings);
  for (const auto& [name, endpoint] : endpoints_) {
    count += endpoint->state() == EndpointState::kParting || asked_within(*endpoint, patience) ? 1 : 0;
  }
  return count;
}

/// Once in a while, since it looks at all of them.
void Endpoints::make_room() {
  if (links_wanted_ == 0) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_round_) {
    return;
  }
  next_round_ = now + kRound;
  ++idle_round_;
  const std::size_t going = links_going();
  std::vector<Endpoint*> idle;
  {
    const auto guard = known_guard();
    for (const auto& [name, endpoint] : endpoints_) {
      if (endpoint->idle_since(idle_round_) < idle_round_ && endpoint->may_rest()) {
        idle.push_back(endpoint.get());
      }
    }
  }
  if (going >= links_wanted_) {
    return;
  }
  const std::size_t most = std::min(links_wanted_ - going, idle.size());
  std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(most), idle.end(),
                    [](const Endpoint* one, const Endpoint* other) { return one->last_used() < other->last_used(); });
  for (std::size_t i = 0; i < most; ++i) {
    ++path_->counters().connections_rested;
    idle[i]->apply(EndpointEvent::kRestWanted);
  }
}

}  // namespace fabric
