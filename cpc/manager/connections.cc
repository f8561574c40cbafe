// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/manager/connections.h"

#include <utility>
namespace fabric::cpc {
namespace {

/// What is wrong with the queue pairs that a request names; nothing: "".
std::string check_ends(bool one_way, const PortContext& local, const Message& request) {
  const std::size_t count = local.queues->count();
  if (one_way != local.queues->has_xrc()) {
    return std::string("has ") + (local.queues->has_xrc() ? "" : "no ") +
           "X queues: btl_fabric_receive_queues must be equal";
  }
  const std::size_t ends = one_way ? 1 : count;
  if (request.ends.size() != ends) {
    return "has " + std::to_string(count) + " receive queues, you have " + std::to_string(request.ends.size()) +
           ": btl_fabric_receive_queues must be equal";
  }
  return {};
}

}  // namespace

void Connections::handle(Command command) {
  std::visit(
      [this](auto& one) {
        const ConnectionKey key = one.key;
        Connection& target = connection(key);
        on_command(target, one);
        if (target.state() == State::kClosed) {
          connections_.erase(key);
        }
      },
      command);
}

void Connections::on_request(std::unique_ptr<Channel> channel, Message request) {
  if (!acceptable(*channel, request)) {
    return;
  }
  const ConnectionKey key{request.header.sender, request.header.target_port, request.header.sender_port,
                          channel->cpc().one_way ? Direction::kIncoming : Direction::kBoth};
  Connection& target = connection(key);
  target.request_arrived(std::move(channel), std::move(request));
  if (target.state() == State::kClosed) {
    connections_.erase(key);
  }
}

bool Connections::acceptable(Channel& channel, const Message& request) const {
  const ProcessName& self = environment_.settings->self;
  const std::string who = "rank " + std::to_string(self.rank) + " of job " + std::to_string(self.job);
  const PortContext* const local = environment_.port(request.header.target_port);
  if (local == nullptr) {
    channel.refuse(RefuseReason::kUnknownPort, who + " has no port " + std::to_string(request.header.target_port));
    return false;
  }
  if (const std::string wrong = check_ends(channel.cpc().one_way, *local, request); !wrong.empty()) {
    channel.refuse(RefuseReason::kQueueMismatch, who + " " + wrong);
    return false;
  }
  return true;
}

const Connection* Connections::find(const ConnectionKey& key) const noexcept {
  const auto found = connections_.find(key);
  return found == connections_.end() ? nullptr : found->second.get();
}

Connection& Connections::connection(const ConnectionKey& key) {
  std::unique_ptr<Connection>& found = connections_[key];
  if (!found) {
    found = std::make_unique<Connection>(key, environment_);
  }
  return *found;
}

}  // namespace fabric::cpc
