// SPDX-License-Identifier: BSD-3-Clause
//
// Connections for which there are no queue pairs now: they wait until idle ones are given up. The main thread, which knows which
// are idle, is told how many wait.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "cpc/manager/connections.h"

namespace fabric::cpc {
namespace {

/// Whoever has waited for so long has peers that answer nothing, since they compute, or wait for something else than MPI, and
/// perhaps for us. Then this process takes more than its part of the device, if that has any.
constexpr std::chrono::milliseconds kPatience{250};
/// Who has no connections that could go, and has found nothing for so long, gives up; sooner if the user wants that.
constexpr std::chrono::milliseconds kGivesUp{10000};

}  // namespace

std::optional<std::unique_ptr<QueuePairs>> Connections::prepare(const ConnectionKey& key, const Message* request,
                                                                const PeerTarget* target,
                                                                std::chrono::milliseconds waited) {
  const PortContext* const port = environment_.port(key.local_port);
  if (port == nullptr || port->budget == nullptr || key.direction != Direction::kBoth) {
    return nullptr;
  }
  const QueueSubset& queues = wanted_queues(*port, request, target);
  if (waited < kPatience && !port->budget->has(static_cast<std::int64_t>(queues.count()), request != nullptr)) {
    return std::nullopt;
  }
  auto made = (*environment_.make_queue_pairs)(*port, queues);
  if (made) {
    return std::move(*made);
  }
  // What is used up may come back, from our connections or from who shares the device.
  const bool may_come_back =
      made.error().is_shortage &&
      (port->budget->shrink() ||
       waited < std::min(kGivesUp, std::chrono::milliseconds(environment_.settings->retry_time_ms)));
  if (may_come_back) {
    return std::nullopt;
  }
  return nullptr;  // it fails again when the connection tries, which reports it
}

void Connections::wait_for_room(Connect wish) {
  WaitingConnection& waiting = rooms_[wish.key.local_port].at(wish.key);
  waiting.wish = std::move(wish);
  place(waiting);
  tell_waiting(waiting.key().local_port);
}

void Connections::wait_for_room(const ConnectionKey& key, std::unique_ptr<Channel> channel, Message request,
                                std::optional<Connect> wish) {
  WaitingConnection& waiting = rooms_[key.local_port].at(key);
  waiting.ask(std::move(channel), std::move(request));
  if (wish) {
    waiting.wish = std::move(wish);
  }
  place(waiting);
  tell_waiting(key.local_port);
  if (waiting.waited() >= kPatience) {  // it has been put off, and may be again before the next look
    serve_waiting(key.local_port);
  }
}

/// Where it is found by what it lacks now, or nowhere, if nobody wants it any more.
void Connections::place(WaitingConnection& waiting) {
  const std::uint16_t port = waiting.key().local_port;
  if (waiting.is_over()) {
    rooms_[port].give_up(waiting);
    return;
  }
  const QueueSubset& queues = wanted_queues(*environment_.port(port), waiting.request(), waiting.target());
  rooms_[port].place(waiting, {queues.count(), waiting.peer_asks()});
}

WaitingConnection* Connections::find_waiting(const ConnectionKey& key) noexcept {
  const auto found = rooms_.find(key.local_port);
  return found == rooms_.end() ? nullptr : found->second.find(key);
}

/// Queue pairs that go with a connection through another port of the device do as well.
void Connections::tell_waiting(std::uint16_t port) {
  const ibv_context* const device = environment_.port(port)->device;
  std::size_t count = 0;
  for (const auto& [other, room] : rooms_) {
    count += environment_.port(other)->device == device ? room.count() : 0;
  }
  if (std::exchange(told_[device], count) != count) {
    environment_.say(RoomWanted{port, count});
  }
  if (!patience_) {
    patience_.emplace(environment_.loop, [this] { serve_all(); });
  }
  if (!rooms_[port].empty() && !patience_->running()) {
    patience_->start(static_cast<unsigned>(kPatience.count()));
  }
}

void Connections::serve_all() {
  std::vector<std::uint16_t> ports;
  for (const auto& [port, room] : rooms_) {
    ports.push_back(port);
  }
  for (const std::uint16_t port : ports) {
    serve_waiting(port);
  }
}

/// Whoever wants it: this process, a peer, or both.
void Connections::begin(WaitingConnection& waiting, std::unique_ptr<QueuePairs> queue_pairs) {
  Lane& lane = lanes_[waiting.key()];
  Connection& connection = make(lane, waiting.key(), waiting.wish ? waiting.wish->link : lane.newest + 1);
  connection.provide(std::move(queue_pairs));
  if (!waiting.peer_asks()) {
    connection.connect(std::move(waiting.wish->target));
    return;
  }
  std::optional<PeerTarget> target;
  if (waiting.wish) {
    target = std::move(waiting.wish->target);
  }
  Message request = waiting.take_request();
  connection.request_arrived(waiting.take_channel(), std::move(request), std::move(target));
}

/// Those that this process wants may have to wait for longer than those that peers ask for. Who lacks the same as one
/// that finds nothing finds nothing either, and is not looked at: a pass costs what it begins, and one refusal of the
/// device for each need.
void Connections::serve_waiting(std::uint16_t port) {
  const auto found = rooms_.find(port);
  if (found == rooms_.end()) {
    return;
  }
  WaitingRoom& room = found->second;
  for (const ConnectionKey& key : room.take_changed()) {
    if (WaitingConnection* const waiting = room.find(key); waiting != nullptr) {
      place(*waiting);
    }
  }
  std::vector<Need> unmet;
  while (WaitingConnection* const waiting = room.oldest(unmet)) {
    if (waiting->is_over()) {
      room.give_up(*waiting);
      continue;
    }
    auto prepared = prepare(waiting->key(), waiting->request(), waiting->target(), waiting->waited());
    if (prepared) {
      begin(*room.take(waiting->key()), std::move(*prepared));
    } else {
      unmet.push_back(room.need_of(*waiting));
    }
  }
  tell_waiting(port);
}

}  // namespace fabric::cpc
