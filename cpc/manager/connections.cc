// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/manager/connections.h"

#include <algorithm>
#include <optional>
#include <utility>
namespace fabric::cpc {
namespace {

/// What is wrong with the queue pairs that a request names; nothing: "".
std::string check_ends(bool one_way, const PortContext& local, const Message& request) {
  const std::size_t count = local.queues->count();
  if (!(one_way ? local.queues->has_xrc() : local.queues->has_others())) {
    return std::string("has ") + (one_way ? "no X queues" : "X queues") + ": btl_fabric_receive_queues must be equal";
  }
  if (one_way ? request.ends.size() != 1 : find_subset(local, request.ends.size()) == nullptr) {
    return "has " + std::to_string(count) + " receive queues, you have " + std::to_string(request.ends.size()) +
           ": btl_fabric_receive_queues must be equal";
  }
  return {};
}

/// The main thread has been told that it may send, or will be.
bool is_up(const Connection& connection) {
  return connection.state() == State::kConfirming || connection.state() == State::kConnected;
}

}  // namespace

void Connections::handle(Command command) {
  std::visit([this](auto& one) { on(one); }, command);
}

/// A connection that is under way is what is wanted, whoever began it. But not one that is up, and that the main thread
/// knew when it numbered its wish: it has done with that, and closes it when its goodbye has arrived.
void Connections::on(Connect& command) {
  Lane& lane = lanes_[command.key];
  lane.wanted = command.link;
  if (lane.current && lane.current->link() < command.link && is_up(*lane.current)) {
    lane.next = std::move(command);
    return;
  }
  begin(lane, std::move(command));
}

/// What this process wants.
void Connections::begin(Lane& lane, Connect command) {
  if (lane.current) {
    lane.current->connect(std::move(command.target));
    return;
  }
  if (WaitingConnection* const waiting = find_waiting(command.key); waiting != nullptr) {
    waiting->wish = std::move(command);
    place(*waiting);
    return;
  }
  auto prepared = prepare(command.key, nullptr, &command.target);
  if (!prepared) {
    wait_for_room(std::move(command));
    return;
  }
  Connection& connection = make(lane, command.key, command.link);
  connection.provide(std::move(*prepared));
  connection.connect(std::move(command.target));
}

void Connections::on(ReceivesPosted& command) {
  if (Connection* const connection = find(command.key, command.link); connection != nullptr) {
    connection->receives_posted();
  }
}

void Connections::on(PeerSpoke& command) {
  if (Connection* const connection = find(command.key, command.link); connection != nullptr) {
    connection->peer_spoke();
  }
}

void Connections::on(Close& command) {
  Lane& lane = lanes_[command.key];
  if (lane.next && lane.next->link == command.link) {
    lane.next.reset();
  }
  WaitingConnection* const waiting = find_waiting(command.key);
  // It may have been handed on by the connection that is closed now, to one that the main thread does not know of.
  const bool waits = waiting != nullptr && waiting->wish && lane.wanted <= command.link;
  if (waits) {
    waiting->wish.reset();
    place(*waiting);
  }
  if (lane.current && lane.current->link() > command.link && lane.wanted <= command.link) {
    lane.current->withdraw(command.reason);
  }
  if (Connection* const connection = find(command.key, command.link); connection != nullptr) {
    connection->close(std::move(command.reason), command.is_final);
  } else {
    lane.newest = std::max(lane.newest, command.link);
    environment_.say(Flushing{command.key, command.link});  // it was never made: another one was there already
  }
  if (waits) {
    serve_waiting(command.key.local_port);
  }
}

void Connections::on(Destroy& command) {
  if (Connection* const connection = find(command.key, command.link); connection != nullptr) {
    connection->destroy();
  }
}

void Connections::on_request(std::unique_ptr<Channel> channel, Message request) {
  if (!acceptable(*channel, request)) {
    return;
  }
  const ConnectionKey key{request.header.sender, request.header.target_port, request.header.sender_port,
                          channel->cpc().one_way ? Direction::kIncoming : Direction::kBoth};
  Lane& lane = lanes_[key];
  if (lane.incarnations.has_ended(request.header.incarnation)) {
    channel->refuse(RefuseReason::kOutdated, who() + ": that connection is over", lane.incarnations.newest());
    return;
  }
  if (lane.current && lane.current->exchanges() != channel->cpc().exchanges_cts) {
    channel->refuse(RefuseReason::kNotWanted, who() + ": it is being connected by another method");
    return;
  }
  if (lane.current) {
    lane.current->request_arrived(std::move(channel), std::move(request));
    return;
  }
  begin(lane, key, std::move(channel), std::move(request), {});
}

/// What a peer asks for, by a channel of its own, and this process perhaps too.
void Connections::begin(Lane& lane, const ConnectionKey& key, std::unique_ptr<Channel> channel, Message request,
                        std::optional<Connect> wish) {
  WaitingConnection* const waiting = find_waiting(key);
  if (waiting != nullptr && waiting->wish && !wish) {
    wish = waiting->wish;
  }
  auto prepared = prepare(key, &request, wish ? &wish->target : nullptr);
  if (!prepared) {
    wait_for_room(key, std::move(channel), std::move(request), std::move(wish));
    return;
  }
  if (waiting != nullptr) {
    rooms_[key.local_port].erase(key);
    tell_waiting(key.local_port);
  }
  Connection& connection = make(lane, key, wish ? wish->link : lane.newest + 1);
  connection.provide(std::move(*prepared));
  std::optional<PeerTarget> target;
  if (wish) {
    target = std::move(wish->target);
  }
  connection.request_arrived(std::move(channel), std::move(request), std::move(target));
}

/// The last thing that a connection does in an event.
void Connections::on_event(Connection& connection) {
  const ConnectionKey key = connection.key();
  Lane& lane = lanes_.at(key);
  if (connection.state() == State::kClosed) {
    if (lane.current.get() == &connection) {
      lane.current.reset();
      connect_next(lane);
    } else {
      std::erase_if(lane.ending, [&](const auto& one) { return one.get() == &connection; });
    }
    serve_all();
    return;
  }
  if (connection.state() != State::kClosing || lane.current.get() != &connection) {
    return;
  }
  lane.incarnations.end(connection.incarnation());
  std::optional<Succession> succession = connection.take_succession();
  lane.ending.push_back(std::move(lane.current));
  if (succession) {
    succeed(lane, key, std::move(*succession));
  }
  connect_next(lane);
}

void Connections::connect_next(Lane& lane) {
  if (std::optional<Connect> next = std::exchange(lane.next, std::nullopt); next) {
    on(*next);
  }
}

void Connections::succeed(Lane& lane, const ConnectionKey& key, Succession succession) {
  std::optional<Connect> wish;
  if (succession.wish) {
    wish = Connect{key, lane.newest + 1, std::move(*succession.wish)};
  }
  if (succession.channel) {
    begin(lane, key, std::move(succession.channel), std::move(succession.request), std::move(wish));
  } else {
    begin(lane, std::move(*wish));
  }
}

bool Connections::acceptable(Channel& channel, const Message& request) const {
  const PortContext* const local = environment_.port(request.header.target_port);
  if (local == nullptr) {
    channel.refuse(RefuseReason::kUnknownPort, who() + " has no port " + std::to_string(request.header.target_port));
    return false;
  }
  if (local->completion_queues != nullptr && local->completion_queues->is_lost()) {
    channel.refuse(RefuseReason::kDeviceGone,
                   who() + ": the device of port " + std::to_string(request.header.target_port) + " is gone");
    return false;
  }
  if (const std::string wrong = check_ends(channel.cpc().one_way, *local, request); !wrong.empty()) {
    channel.refuse(RefuseReason::kQueueMismatch, who() + " " + wrong);
    return false;
  }
  return true;
}

const Connection* Connections::find(const ConnectionKey& key) const noexcept {
  const auto found = lanes_.find(key);
  return found == lanes_.end() ? nullptr : found->second.current.get();
}

std::size_t Connections::count() const noexcept {
  std::size_t count = 0;
  for (const auto& [key, lane] : lanes_) {
    count += (lane.current ? 1 : 0) + lane.ending.size();
  }
  return count;
}

Connection* Connections::find(const ConnectionKey& key, LinkNumber link) noexcept {
  const auto found = lanes_.find(key);
  if (found == lanes_.end()) {
    return nullptr;
  }
  Lane& lane = found->second;
  if (lane.current && lane.current->link() == link) {
    return lane.current.get();
  }
  const auto ending =
      std::find_if(lane.ending.begin(), lane.ending.end(), [link](const auto& one) { return one->link() == link; });
  return ending == lane.ending.end() ? nullptr : ending->get();
}

/// A number that is taken already is replaced by the next one.
Connection& Connections::make(Lane& lane, const ConnectionKey& key, LinkNumber link) {
  if (const auto room = rooms_.find(key.local_port); room != rooms_.end()) {
    room->second.forget_turn(key);
  }
  lane.newest = std::max(lane.newest + 1, link);
  lane.current = std::make_unique<Connection>(key, lane.newest, environment_, lane.incarnations,
                                              static_cast<ConnectionOwner&>(*this));
  return *lane.current;
}

}  // namespace fabric::cpc
