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
/// At least so much for each endpoint, whose looking at takes some 50 to 100 ns: of the time of a process with
/// thousands of them that is a few percent. What a look has taken would say it more exactly, but also how long others
/// had the processor.
constexpr std::chrono::microseconds kRoundOfEach{2};
/// After so long others are asked too: a process that computes answers nothing. The more are silent, the longer it takes until the
/// next one is asked, for what is sent to those has to wait.
constexpr std::chrono::microseconds kPatience{2000};
constexpr std::size_t kMostDoublings = 10;

std::chrono::microseconds round_of(std::size_t endpoints) noexcept {
  return std::max(kRound, kRoundOfEach * static_cast<std::int64_t>(endpoints));
}

}  // namespace

void Endpoints::on(const cpc::RoomWanted& upcall) noexcept {
  links_wanted_ = upcall.connections;
  has_chores_ = has_chores_ || links_wanted_ > 0;
}

Endpoints::Resting Endpoints::look_who_rests() {
  Resting seen;
  const auto guard = known_guard();
  seen.endpoints = endpoints_.size();
  for (const auto& [name, endpoint] : endpoints_) {
    seen.parting += endpoint->state() == EndpointState::kParting ? 1 : 0;
    if (endpoint->state() == EndpointState::kResting) {
      seen.asked.push_back(idle_round_ - endpoint->last_used());
    }
    if (endpoint->idle_since(idle_round_) < idle_round_ && endpoint->may_rest()) {
      seen.idle.push_back(endpoint.get());
    }
  }
  return seen;
}

std::size_t Endpoints::links_going(const Resting& seen) const noexcept {
  const std::size_t count = seen.parting + ending_.size();
  const auto asked_within = [&seen](std::chrono::microseconds time) {
    const auto rounds = static_cast<std::uint64_t>(std::max<std::int64_t>(time / round_of(seen.endpoints), 1));
    return static_cast<std::size_t>(
        std::count_if(seen.asked.begin(), seen.asked.end(), [rounds](std::uint64_t age) { return age < rounds; }));
  };
  const std::size_t silent = seen.asked.size() - asked_within(kPatience);
  return count + asked_within(kPatience * (1 << std::min(silent / links_wanted_, kMostDoublings)));
}

/// Once in a while, since it looks at all of them.
void Endpoints::make_room() {
  if (links_wanted_ == 0 || std::chrono::steady_clock::now() < next_round_) {
    return;
  }
  ++idle_round_;
  Resting seen = look_who_rests();
  const std::size_t going = links_going(seen);
  if (going < links_wanted_) {
    let_rest(seen.idle, links_wanted_ - going);
  }
  next_round_ = std::chrono::steady_clock::now() + round_of(seen.endpoints);
}

/// Those that have been idle for longest, `most` at most.
void Endpoints::let_rest(std::vector<Endpoint*>& idle, std::size_t most) {
  most = std::min(most, idle.size());
  std::partial_sort(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(most), idle.end(),
                    [](const Endpoint* one, const Endpoint* other) { return one->last_used() < other->last_used(); });
  for (std::size_t i = 0; i < most; ++i) {
    ++path_->counters().connections_rested;
    idle[i]->apply(EndpointEvent::kRestWanted);
  }
}

}  // namespace fabric
