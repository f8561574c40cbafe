// SPDX-License-Identifier: BSD-3-Clause
//
// What happens to a connection, as events of the table.
#include "cpc/core/connection.h"

#include <utility>

#include "cpc/core/trace.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

Connection::Connection(const ConnectionKey& key, const ConnectionEnvironment& environment)
    : key_(key), environment_(environment), timer_(environment.loop, [this] { on_timer(); }) {}

// ---- What happens

void Connection::connect(PeerTarget target) {
  if (key_.direction == Direction::kIncoming) {
    environment_.say(Failed{key_, "only the side that sends can ask for a connection that goes one way", {}});
    return;
  }
  if (!target_) {
    target_ = std::move(target);
  }
  if (state_ == State::kClosed) {
    exchanges_ = target_->cpc.exchanges_cts;
  }
  apply(Event::kConnectWanted);
}

void Connection::request_arrived(std::unique_ptr<Channel> channel, Message request) {
  if (state_ == State::kClosed) {
    exchanges_ = channel->cpc().exchanges_cts;
  } else if (exchanges_ != channel->cpc().exchanges_cts) {
    channel->refuse(RefuseReason::kOtherConnection, "it is being connected by another method");
    return;
  }
  if (state_ == State::kClosed && !take_target(request)) {
    channel->refuse(RefuseReason::kTargetGone, "target " + std::to_string(request.xrc.target_qpn) + " is gone");
    return;
  }
  new_channel_ = std::move(channel);
  incoming_ = std::move(request);
  apply(Event::kRequestArrived);
  incoming_.reset();
  new_channel_.reset();
}

/// Takes the target that a request names, so that from now on it lives at least as long as this connection. False: it is
/// gone, or has broken down.
bool Connection::take_target(const Message& request) {
  const PortContext* const port = environment_.port(key_.local_port);
  if (key_.direction != Direction::kIncoming || request.xrc.target_qpn == 0 || port == nullptr) {
    return true;
  }
  auto taken = environment_.senders->maker().target(*port, request.ends.front(), request.xrc.target_qpn);
  if (!taken || (*taken)->are_broken()) {
    return false;
  }
  taken_target_ = std::move(*taken);
  return true;
}

void Connection::on_message(Channel&, Message message) {
  switch (message.header.type) {
    case MessageType::kRequest:
      break;  // comes to request_arrived(); a channel takes no second one
    case MessageType::kTarget:
      on_answer(Event::kTargetArrived, std::move(message));
      break;
    case MessageType::kReply:
      on_answer(Event::kReplyArrived, std::move(message));
      break;
    case MessageType::kConfirm:
      apply(Event::kConfirmArrived);
      break;
    case MessageType::kPause:
      break;  // the channel is closed next
    case MessageType::kRefuse:
      on_refusal(message);
      break;
  }
}

void Connection::on_answer(Event event, Message answer) {
  if (Status fits = check_answer(event, answer); !fits) {
    apply(Event::kLocalError, std::move(fits).error().text);
    return;
  }
  incoming_ = std::move(answer);
  apply(event);
  incoming_.reset();
}

Status Connection::check_answer(Event event, const Message& answer) const {
  if (answer.ends.size() != queue_pairs_->ends().size()) {
    return failure("the peer answers with " + std::to_string(answer.ends.size()) + " queue pairs, we have " +
                   std::to_string(queue_pairs_->ends().size()));
  }
  if (share_ == nullptr || event != Event::kReplyArrived) {
    return {};
  }
  const std::size_t count = environment_.port(key_.local_port)->queues->count();
  return answer.xrc.srqs.size() == count
             ? Status()
             : Status(failure("the peer has " + std::to_string(answer.xrc.srqs.size()) + " receive queues, we have " +
                              std::to_string(count) + ": btl_fabric_receive_queues must be equal"));
}

void Connection::on_refusal(const Message& refusal) {
  Event event = Event::kRefusalArrived;
  if (refusal.reason == RefuseReason::kCollision) {
    event = Event::kCollisionArrived;
  } else if (refusal.reason == RefuseReason::kTargetGone && named_target_ != 0) {
    event = Event::kTargetGoneArrived;
  }
  apply(event, "the peer refuses: " + refusal.text);
}

void Connection::on_lost(Channel&, std::string reason, bool confirm_taken) {
  apply(confirm_taken ? Event::kConfirmTaken : Event::kChannelLost, std::move(reason));
}

void Connection::on_timer() {
  std::string detail;
  if (timer_event_ == Event::kHandshakeTimer) {
    detail = "the peer did not come back within " + std::to_string(environment_.settings->handshake_timeout_ms) +
             " ms after: " + detail_;
  }
  apply(timer_event_, std::move(detail));
}

// ---- What it leads to

void Connection::apply(Event event, std::string detail) {
  assert_on_progress_thread();
  request_left_ |= channel_ && channel_->request_left();
  const Step step = cpc::step(state_, event, guards());
  if (step.outcome == Outcome::kIgnored) {
    return;
  }
  if (!detail.empty()) {
    detail_ = std::move(detail);
  }
  if (step.outcome == Outcome::kProtocolError) {
    detail_ = "protocol error: ";
    detail_.append(to_string(event)).append(" in state ").append(to_string(state_)).append(": ").append(step.why);
  }
  history_.add(state_, event, step.next);
  if (environment_.settings->trace != nullptr) {
    environment_.settings->trace->add(key_, state_, event, step.next);
  }
  state_ = step.next;
  for (const Action action : step.actions) {
    if (Status done = perform(action); !done) {
      apply(Event::kLocalError, std::move(done).error().text);
      return;
    }
  }
}

Guards Connection::guards() const {
  Guards guards;
  guards.peer_has_precedence = key_.peer < environment_.settings->self || !request_left_;
  guards.exchanges = exchanges_;
  guards.wanted = target_.has_value();
  if (exchanges_) {
    // Every attempt has queue pairs of its own: one that is not newer has been given up by the peer.
    guards.repeated = incoming_ && new_channel_ && incoming_->header.attempt <= peer_attempt_;
    guards.stale = guards.repeated;
  } else {
    const bool same_ends =
        incoming_ && !remote_ends_.empty() && incoming_->ends == remote_ends_ && incoming_->address == remote_address_;
    // The first request names no target; a later one names that which we have answered it with.
    const bool other_target = new_channel_ && same_ends && incoming_->xrc.target_qpn != 0 && queue_pairs_ &&
                              incoming_->xrc.target_qpn != queue_pairs_->ends().front().qpn;
    guards.repeated = same_ends && !other_target;
    guards.stale = guards.repeated && incoming_->header.attempt < peer_attempt_;
  }
  guards.retries_left = attempt_ <= environment_.settings->connect_retries;
  guards.channel_up = channel_ != nullptr;
  guards.one_way = key_.direction != Direction::kBoth;
  return guards;
}

}  // namespace fabric::cpc
