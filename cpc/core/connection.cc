// SPDX-License-Identifier: BSD-3-Clause
//
// What happens to a connection, as events of the table.
#include "cpc/core/connection.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cpc/core/trace.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

Connection::Connection(const ConnectionKey& key, LinkNumber link, const ConnectionEnvironment& environment,
                       Incarnations& incarnations, ConnectionOwner& owner)
    : key_(key),
      link_(link),
      environment_(environment),
      incarnations_(incarnations),
      owner_(owner),
      timer_(environment.loop, [this] { on_timer(); }) {}

// ---- What happens

void Connection::connect(PeerTarget target) {
  wanted_ = state_ != State::kConfirming && state_ != State::kConnected;
  if (!target_) {
    target_ = std::move(target);
  }
  if (state_ == State::kClosed) {
    exchanges_ = target_->cpc.exchanges_cts;
  }
  apply(Event::kConnectWanted);
}

void Connection::close(std::string reason, bool is_final) {
  refuse_reason_ = is_final ? RefuseReason::kNotWanted : RefuseReason::kClosed;
  apply(Event::kCloseWanted, std::move(reason));
}

void Connection::withdraw(std::string reason) {
  wanted_ = false;
  refuse_reason_ = RefuseReason::kClosed;
  apply(Event::kWithdrawn, std::move(reason));
}

void Connection::request_arrived(std::unique_ptr<Channel> channel, Message request, std::optional<PeerTarget> wish) {
  if (wish) {
    wanted_ = true;
    target_ = std::move(wish);
  }
  Event event = Event::kRequestArrived;
  if (state_ == State::kClosed) {
    exchanges_ = channel->cpc().exchanges_cts;
    event = take_target(request) ? event : Event::kLateRequestArrived;
  }
  new_channel_ = std::move(channel);
  incoming_ = std::move(request);
  incarnations_.note(incoming_->header.incarnation);
  apply(event);
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
    case MessageType::kRequest:  // comes to request_arrived(); a channel takes no second one
    case MessageType::kClose:    // comes to on_lost()
      break;
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
      apply(Event::kPauseArrived, "others go first");
      break;
    case MessageType::kRefuse:
      on_refusal(std::move(message));
      break;
  }
}

void Connection::on_answer(Event event, Message answer) {
  if (Status fits = check_answer(event, answer); !fits) {
    apply(Event::kMisfitArrived, std::move(fits).error().text);
    return;
  }
  incoming_ = std::move(answer);
  apply(event);
}

Status Connection::check_answer(Event event, const Message& answer) const {
  if (!queue_pairs_) {
    return {};  // nothing was asked
  }
  if (answer.ends.size() != queue_pairs_->ends().size()) {
    return failure("the peer answers with " + std::to_string(answer.ends.size()) + " queue pairs, we have " +
                   std::to_string(queue_pairs_->ends().size()));
  }
  if (share_ == nullptr || event != Event::kReplyArrived) {
    return {};
  }
  const std::size_t count = environment_.port(key_.local_port)->queues->xrc_count();
  return answer.xrc.srqs.size() == count
             ? Status()
             : Status(failure("the peer has " + std::to_string(answer.xrc.srqs.size()) + " receive queues, we have " +
                              std::to_string(count) + ": btl_fabric_receive_queues must be equal"));
}

void Connection::on_refusal(Message refusal) {
  Event event = Event::kRefusalArrived;
  switch (refusal.reason) {
    case RefuseReason::kCollision:
      event = Event::kCollisionArrived;
      break;
    case RefuseReason::kTargetGone:
      event = Event::kTargetGoneArrived;
      break;
    case RefuseReason::kOutdated:
    case RefuseReason::kOtherConnection:
    case RefuseReason::kClosed:
      event = Event::kOutdatedArrived;
      break;
    case RefuseReason::kUnknownPort:
    case RefuseReason::kQueueMismatch:
    case RefuseReason::kFailed:
    case RefuseReason::kNotWanted:
    case RefuseReason::kOtherVersion:
    case RefuseReason::kDeviceGone:
      break;
  }
  is_unwanted_ = refusal.reason == RefuseReason::kNotWanted;
  has_no_device_ = refusal.reason == RefuseReason::kDeviceGone;
  incarnations_.note(refusal.newest);
  std::string detail = "the peer refuses: " + refusal.text;
  incoming_ = std::move(refusal);
  apply(event, std::move(detail));
}

void Connection::on_lost(Channel& channel, std::string reason, bool confirm_taken) {
  spent_ms_ = channel.peer_is_busy() ? 0 : spent_ms_ + channel.tried_ms();
  unheard_ = channel.nobody_listens() ? unheard_ + 1 : 0;
  apply(confirm_taken ? Event::kConfirmTaken : Event::kChannelLost, std::move(reason));
}

bool Connection::peer_has_ended() const noexcept {
  if (!target_ || !target_->was_there) {
    return false;
  }
  const PortContext* const port = environment_.port(key_.local_port);
  const bool is_iwarp = port != nullptr && port->address.link == Transport::kIwarp;
  return unheard_ >= (is_iwarp ? kMostUnheardOnIwarp : kMostUnheard);
}

void Connection::on_timer() {
  std::string detail;
  if (timer_event_ == Event::kHandshakeTimer) {
    detail = "the peer did not come back within " + std::to_string(handshake_time_ms()) + " ms after: " + detail_;
  }
  apply(timer_event_, std::move(detail));
}

// ---- What it leads to

void Connection::apply(Event event, std::string detail) {
  assert_on_progress_thread();
  request_left_ |= channel_ && channel_->request_left();
  for (bool done = false; !done;) {
    done = true;
    const State from = state_;
    for (const Action action : enter(event, std::move(detail))) {
      if (Status good = perform_or_fail(action); !good) {
        event = costs_an_attempt(from, action, good.error()) ? Event::kChannelLost : Event::kLocalError;
        detail = std::move(good).error().text;
        done = false;
        break;
      }
    }
  }
  incoming_.reset();
  new_channel_.reset();
  owner_.on_event(*this);  // which may be the end of this object
}

/// Those of the last attempt are given back before others are made, and on a full device somebody else may have been waiting for
/// them. Whoever has them may give them back, too. The first ones of a connection have been waited for before it began.
bool Connection::costs_an_attempt(State from, Action action, const Error& error) const noexcept {
  return action == Action::kMakeQueuePairs && error.is_shortage && exchanges_ && from != State::kClosed;
}

/// An action that has no memory fails like others. What the end of a connection needs has no other way: then the progress
/// thread reports it.
Status Connection::perform_or_fail(Action action) {
  if (state_ == State::kClosing || state_ == State::kClosed) {
    return perform(action);
  }
  try {
    return perform(action);
  } catch (const std::bad_alloc&) {
    return failure("out of memory");
  }
}

/// Gives what is to be done.
Actions Connection::enter(Event event, std::string detail) {
  const Step step = cpc::step(state_, event, guards());
  if (step.outcome == Outcome::kIgnored) {
    return {};
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
  return step.actions;
}

Guards Connection::guards() const {
  Guards guards;
  const bool is_request = new_channel_ != nullptr;
  std::uint32_t theirs = 0;  // the incarnation of the peer's request, here or on its way
  if (incoming_) {
    theirs = is_request ? incoming_->header.incarnation : incoming_->newest;
  }
  guards.peer_has_precedence =
      !request_left_ || theirs > incarnation_ || (theirs == incarnation_ && key_.peer < environment_.settings->self);
  guards.newer = is_request && theirs > incarnation_;
  guards.older = is_request && theirs < incarnation_;
  guards.old_attempt = is_request && theirs == incarnation_ && incoming_->header.attempt < peer_attempt_;
  // The first request names no target; a later one names that which we have answered it with.
  const bool other_target = is_request && incoming_->xrc.target_qpn != 0 && queue_pairs_ &&
                            incoming_->xrc.target_qpn != queue_pairs_->ends().front().qpn;
  guards.same_ends = incoming_ && !remote_ends_.empty() && incoming_->ends == remote_ends_ &&
                     incoming_->address == remote_address_ && !other_target;
  const unsigned retry_time_ms = std::max(environment_.settings->retry_time_ms, target_ ? target_->retry_time_ms : 0);
  guards.time_left = !peer_has_ended() && spent_ms_ + next_pause_ms() <= retry_time_ms;
  guards.channel_up = channel_ != nullptr;
  guards.exchanges = exchanges_;
  guards.wanted = wanted_;
  guards.outgoing = key_.direction == Direction::kOutgoing;
  guards.incoming = key_.direction == Direction::kIncoming;
  guards.names_target = named_target_ != 0;
  guards.peer_pauses = peer_pauses_;
  return guards;
}

}  // namespace fabric::cpc
