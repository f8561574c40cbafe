// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/connection.h"

#include <algorithm>
#include <utility>

#include "cpc/progress_thread.h"
#include "cpc/random_bits.h"
#include "cpc/trace.h"

namespace fabric::cpc {
namespace {

constexpr unsigned kFirstRetryMilliseconds = 100;
constexpr unsigned kLongestRetryMilliseconds = 3000;

std::string name_of(const ProcessName& process) {
  return "rank " + std::to_string(process.rank) + " of job " + std::to_string(process.job);
}

}  // namespace

Connection::Connection(const ConnectionKey& key, const ConnectionEnvironment& environment)
    : key_(key), environment_(environment), timer_(environment.loop, [this] { on_timer(); }) {}

// ---- What happens

void Connection::connect(PeerTarget target) {
  if (!target_) {
    target_ = std::move(target);
  }
  if (state_ == State::kClosed) {
    exchanges_ = exchanges_cts(target_->cpc);
  }
  apply(Event::kConnectWanted);
}

void Connection::request_arrived(std::unique_ptr<Channel> channel, Message request) {
  if (state_ == State::kClosed) {
    exchanges_ = exchanges_cts(channel->kind());
  } else if (exchanges_ != exchanges_cts(channel->kind())) {
    channel->refuse(RefuseReason::kOtherConnection, "it is being connected by another method");
    return;
  }
  new_channel_ = std::move(channel);
  incoming_ = std::move(request);
  apply(Event::kRequestArrived);
  incoming_.reset();
  new_channel_.reset();
}

void Connection::on_message(Channel&, Message message) {
  switch (message.header.type) {
    case MessageType::kRequest:
      break;  // comes to request_arrived(); a channel takes no second one
    case MessageType::kReply:
      on_reply(std::move(message));
      break;
    case MessageType::kConfirm:
      apply(Event::kConfirmArrived);
      break;
    case MessageType::kRefuse:
      apply(message.reason == RefuseReason::kCollision ? Event::kCollisionArrived : Event::kRefusalArrived,
            "the peer refuses: " + message.text);
      break;
  }
}

void Connection::on_reply(Message reply) {
  if (reply.ends.size() != queue_pairs_->ends().size()) {
    apply(Event::kLocalError, "the peer answers with " + std::to_string(reply.ends.size()) + " queue pairs, we have " +
                                  std::to_string(queue_pairs_->ends().size()));
    return;
  }
  incoming_ = std::move(reply);
  apply(Event::kReplyArrived);
  incoming_.reset();
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
  guards.peer_has_precedence = key_.peer < environment_.settings->self;
  guards.exchanges = exchanges_;
  guards.wanted = target_.has_value();
  if (exchanges_) {
    // Every attempt has queue pairs of its own: one that is not newer has been given up by the peer.
    guards.repeated = incoming_ && new_channel_ && incoming_->header.attempt <= peer_attempt_;
    guards.stale = guards.repeated;
  } else {
    guards.repeated =
        incoming_ && !remote_ends_.empty() && incoming_->ends == remote_ends_ && incoming_->address == remote_address_;
    guards.stale = guards.repeated && incoming_->header.attempt < peer_attempt_;
  }
  guards.retries_left = attempt_ <= environment_.settings->connect_retries;
  guards.channel_up = channel_ != nullptr;
  return guards;
}

Status Connection::perform(Action action) {
  switch (action) {
    case Action::kNone:
      break;
    case Action::kMakeQueuePairs:
      return make_queue_pairs();
    case Action::kConnectQueuePairs:
      return connect_queue_pairs();
    case Action::kFlushQueuePairs:
      if (queue_pairs_) {
        queue_pairs_->flush();
      }
      break;
    case Action::kDestroyQueuePairs:
      queue_pairs_.reset();
      break;
    case Action::kPostHandshake:
      return queue_pairs_->post_handshake();
    case Action::kOpenChannel:
      return open_channel();
    case Action::kAdoptChannel:
      adopt_channel();
      break;
    case Action::kRefuseCollision:
      refuse_new_channel(RefuseReason::kCollision, "requests crossed, and that of the lower rank counts");
      break;
    case Action::kRefuseOther:
      refuse_new_channel(RefuseReason::kOtherConnection,
                         "it is connected to other queue pairs of ours: one of the processes has lost the connection");
      break;
    case Action::kRefuseUnavailable:
      refuse_new_channel(RefuseReason::kUnavailable, state_ == State::kFailed
                                                         ? "its connection has failed: " + detail_
                                                         : "its connection is being closed: " + detail_);
      break;
    case Action::kDropNewChannel:
      new_channel_.reset();
      break;
    case Action::kSendReply:
      send(MessageType::kReply);
      break;
    case Action::kSendConfirm:
      send(MessageType::kConfirm);
      break;
    case Action::kSendRefusal:
      send(MessageType::kRefuse);
      break;
    case Action::kCloseChannel:
      channel_.reset();
      break;
    case Action::kStartRetryTimer:
      start_timer(Event::kRetryTimer, retry_delay_ms());
      break;
    case Action::kStartHandshakeTimer:
      start_timer(Event::kHandshakeTimer, environment_.settings->handshake_timeout_ms);
      break;
    case Action::kStopTimer:
      timer_.stop();
      break;
    case Action::kAskForReceives:
      ask_for_receives();
      break;
    case Action::kTellConnected:
      environment_.say(Connected{key_, remote_ends_});
      break;
    case Action::kTellLinked:
      tell_linked();
      break;
    case Action::kTellPeerLeft:
      environment_.say(PeerLeft{key_, detail_});
      break;
    case Action::kTellFailed:
      tell_failed();
      break;
    case Action::kTellFlushing:
      environment_.say(Flushing{key_});
      break;
  }
  return {};
}

Status Connection::make_queue_pairs() {
  const PortContext* const port = environment_.port(key_.local_port);
  if (port == nullptr) {
    return failure("we have no port " + std::to_string(key_.local_port));
  }
  Result<std::unique_ptr<QueuePairs>> made = (*environment_.make_queue_pairs)(*port);
  if (!made) {
    return failure("making queue pairs", made.error());
  }
  queue_pairs_ = std::move(*made);
  return {};
}

Status Connection::connect_queue_pairs() {
  remote_address_ = incoming_->address;
  remote_ends_ = incoming_->ends;
  opened_by_us_ = channel_->opened_by_us();
  Status connected = channel_->connect(*queue_pairs_, *incoming_);
  return connected ? Status() : failure("connecting queue pairs", connected.error());
}

Status Connection::open_channel() {
  ++attempt_;
  const ChannelOpener* const opener = environment_.opener(target_->cpc);
  if (opener == nullptr) {
    return failure("this process does not run the connection method that the peer is to be connected by");
  }
  const ChannelIdentity identity{
      target_->token, environment_.settings->self, key_.peer, key_.local_port, key_.remote_port, attempt_};
  Result<std::unique_ptr<Channel>> opened = opener->open(identity, *target_, own_ends(MessageType::kRequest));
  if (!opened) {
    return tl::unexpected(std::move(opened).error());
  }
  channel_ = std::move(*opened);
  channel_->set_handler(this);
  return {};
}

void Connection::adopt_channel() {
  channel_ = std::move(new_channel_);
  channel_->set_handler(this);
  peer_attempt_ = channel_->identity().attempt;
}

void Connection::refuse_new_channel(RefuseReason reason, std::string text) {
  new_channel_->refuse(reason, name_of(environment_.settings->self) + ": " + text);
  new_channel_.reset();
}

void Connection::send(MessageType type) {
  if (!channel_) {
    return;
  }
  if (type == MessageType::kRefuse) {
    channel_->refuse(state_ == State::kClosing ? RefuseReason::kClosed : RefuseReason::kFailed,
                     name_of(environment_.settings->self) + ": " + detail_);
  } else {
    channel_->send(own_ends(type));
  }
}

void Connection::start_timer(Event event, unsigned milliseconds) {
  timer_event_ = event;
  timer_.start(milliseconds);
}

void Connection::ask_for_receives() {
  environment_.say(PostReceives{key_, queue_pairs_->handles()});
}

void Connection::tell_linked() {
  const bool is_iwarp = environment_.port(key_.local_port)->address.link == Link::kIwarp;
  environment_.say(
      Linked{key_, queue_pairs_->handles(), remote_ends_, queue_pairs_->handshake(), opened_by_us_ || !is_iwarp});
}

void Connection::tell_failed() {
  std::string reason = "connection to " + name_of(key_.peer) + " (our port " + std::to_string(key_.local_port) +
                       ", its port " + std::to_string(key_.remote_port) + "): " + detail_;
  if (attempt_ > 1) {
    reason += " (attempt " + std::to_string(attempt_) + " of " +
              std::to_string(environment_.settings->connect_retries + 1) + ")";
  }
  environment_.say(Failed{key_, std::move(reason), history_.text()});
}

Message Connection::own_ends(MessageType type) const {
  Message message;
  message.header.type = type;
  message.address = environment_.port(key_.local_port)->address;
  message.ends = queue_pairs_->ends();
  return message;
}

/// Doubles with every attempt, and differs between processes, so that a job that starts does not come in waves.
unsigned Connection::retry_delay_ms() const {
  const unsigned doublings = std::clamp(attempt_, 1U, 6U) - 1;
  const unsigned longest = std::min(kFirstRetryMilliseconds << doublings, kLongestRetryMilliseconds);
  return longest / 2 + random_bits() % (longest / 2 + 1);
}

}  // namespace fabric::cpc
