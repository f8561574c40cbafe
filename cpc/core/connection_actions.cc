// SPDX-License-Identifier: BSD-3-Clause
//
// What a connection does when the table says so.
#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "common/base/wire.h"
#include "cpc/core/connection.h"
#include "cpc/core/message_key.h"
#include "cpc/queue_pairs/random_bits.h"

namespace fabric::cpc {
namespace {

constexpr unsigned kFirstRetryMilliseconds = 100;
constexpr unsigned kLongestRetryMilliseconds = 3000;
/// So many times as long as for others we wait for a peer that lets others go first, and that nobody here needs: the last of tens
/// of thousands that have a turn of 500 ms each comes back in time (connect_throttle.h).
constexpr unsigned kPatience = 3;
constexpr const char* kMethodDoesNotRun =
    "this process does not run the connection method that the peer is to be connected by";

/// The same on both sides, most likely another one for any other attempt of any two processes, and known to nobody else: who has
/// repeated a request that it heard gets no further than this. Not 0.
std::uint32_t cts_number(const ChannelIdentity& identity, bool opened_by_us) noexcept {
  std::array<std::byte, 2 * (4 + 4 + 2) + 4 + 4> what{};
  std::byte* at = what.data();
  const auto put = [&at](auto number) {
    store_be(at, number);
    at += sizeof number;
  };
  for (const bool ours : {opened_by_us, !opened_by_us}) {
    const ProcessName& name = ours ? identity.self : identity.peer;
    put(name.job);
    put(name.rank);
    put(ours ? identity.self_port : identity.peer_port);
  }
  put(identity.incarnation);
  put(identity.attempt);
  return std::max(secret_number(identity.token, what), 1U);
}

}  // namespace

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
      destroy_queue_pairs();
      break;
    case Action::kWantSender:
      share_->want();
      break;
    case Action::kRetireSender:
      share_->target_is_gone();
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
                         "it is connected to other queue pairs of yours: one of the processes has lost the connection");
      break;
    case Action::kRefuseOutdated:
      refuse_new_channel(RefuseReason::kOutdated, "this connection is over");
      break;
    case Action::kRefuseTargetGone:
      refuse_new_channel(RefuseReason::kTargetGone, "target " + std::to_string(incoming_->xrc.target_qpn) + " is gone");
      break;
    case Action::kHandOver:
      succession_ = Succession{wanted_ ? target_ : std::nullopt, std::move(new_channel_), std::move(*incoming_)};
      break;
    case Action::kDropNewChannel:
      new_channel_.reset();
      break;
    case Action::kSendTarget:
      send(MessageType::kTarget);
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
    case Action::kRenewIncarnation:
      incarnation_ = 0;
      request_left_ = false;
      break;
    case Action::kNotePause:
      peer_pauses_ = true;
      break;
    case Action::kStartOver:
      succession_ = Succession{target_, nullptr, {}};
      break;
    case Action::kCountAttempt:
      (void)spend_pause();
      break;
    case Action::kStartRetryTimer:
      start_timer(Event::kRetryTimer, spend_pause());
      break;
    case Action::kStartHandshakeTimer:
      forgive();
      start_timer(Event::kHandshakeTimer, handshake_time_ms());
      break;
    case Action::kStopTimer:
      timer_.stop();
      break;
    case Action::kAskForReceives:
      ask_for_receives();
      break;
    case Action::kTellConnected:
      tell_connected();
      break;
    case Action::kTellLinked:
      tell_linked();
      break;
    case Action::kTellPeerLeft:
      environment_.say(PeerLeft{key_, link_, detail_});
      break;
    case Action::kTellFailed:
      tell_failed();
      break;
    case Action::kTellFlushing:
      environment_.say(Flushing{key_, link_});
      break;
  }
  return {};
}

Status Connection::make_queue_pairs() {
  const PortContext* const port = environment_.port(key_.local_port);
  if (port == nullptr) {
    return failure("we have no port " + std::to_string(key_.local_port));
  }
  if (key_.direction == Direction::kOutgoing) {
    return join_sender(*port);
  }
  if (prepared_) {
    queue_pairs_ = std::move(prepared_);
    return {};
  }
  if (taken_target_) {
    queue_pairs_ = std::move(taken_target_);
    return {};
  }
  Result<std::unique_ptr<QueuePairs>> made =
      key_.direction == Direction::kIncoming ? environment_.senders->maker().target(*port, incoming_->ends.front(), 0)
                                             : (*environment_.make_queue_pairs)(*port, queues_of_connection(*port));
  if (!made) {
    return failure("making queue pairs", made.error());
  }
  queue_pairs_ = std::move(*made);
  return {};
}

/// Ours.
bool Connection::is_device_gone() const noexcept {
  const PortContext* const port = environment_.port(key_.local_port);
  return port != nullptr && port->completion_queues != nullptr && port->completion_queues->is_lost();
}

const QueueSubset& Connection::queues_of_connection(const PortContext& port) const {
  return wanted_queues(port, incoming_ ? &*incoming_ : nullptr, target_ ? &*target_ : nullptr);
}

const QueueSubset& wanted_queues(const PortContext& port, const Message* request, const PeerTarget* target) {
  if (request != nullptr) {
    if (const QueueSubset* const asked = find_subset(port, request->ends.size()); asked != nullptr) {
      return *asked;
    }
  }
  return port.subsets.at(target != nullptr ? target->subset : 0);
}

Status Connection::join_sender(const PortContext& port) {
  const ChannelOpener* const opener = environment_.opener(target_->cpc.kind);
  if (opener == nullptr) {
    return failure(kMethodDoesNotRun);
  }
  const Result<XrcDomainPort> domain = opener->xrc_domain(*target_, key_.remote_port);
  if (!domain) {
    return tl::unexpected(domain.error());
  }
  auto joined = environment_.senders->join(port, *domain, [this] { apply(Event::kSenderReady); });
  if (!joined) {
    return failure("making the queue pair to the peer's node", joined.error());
  }
  share_ = joined->get();
  queue_pairs_ = std::move(*joined);
  return {};
}

Status Connection::connect_queue_pairs() {
  if (incoming_->ends.size() != queue_pairs_->ends().size()) {
    return failure("the peer has " + std::to_string(incoming_->ends.size()) + " queue pairs, we have " +
                   std::to_string(queue_pairs_->ends().size()));
  }
  remote_address_ = incoming_->address;
  remote_ends_ = incoming_->ends;
  opened_by_us_ = channel_->opened_by_us();
  cts_ = cts_number(channel_->identity(), opened_by_us_);
  Status connected = channel_->connect(*queue_pairs_, *incoming_);
  return connected ? Status() : failure("connecting queue pairs", connected.error());
}

Status Connection::open_channel() {
  ++attempt_;
  if (incarnation_ == 0) {
    incarnation_ = incarnations_.next();
  }
  ChannelOpener* const opener = environment_.opener(target_->cpc.kind);
  if (opener == nullptr) {
    return failure(kMethodDoesNotRun);
  }
  const ChannelIdentity identity{
      target_->token, environment_.settings->self, key_.peer, key_.local_port, key_.remote_port, attempt_,
      incarnation_};
  Message request = own_ends(MessageType::kRequest);
  named_target_ = request.xrc.target_qpn;
  Result<std::unique_ptr<Channel>> opened = opener->open(identity, *target_, std::move(request));
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
  incarnation_ = incoming_->header.incarnation;
  peer_attempt_ = incoming_->header.attempt;
  request_left_ = false;
  peer_pauses_ = false;
  forgive();
}

void Connection::refuse_new_channel(RefuseReason reason, const std::string& text) {
  const std::uint32_t newest = reason == RefuseReason::kCollision ? incarnation_ : incarnations_.newest();
  new_channel_->refuse(reason, to_string(environment_.settings->self) + ": " + text, newest);
  new_channel_.reset();
}

void Connection::send(MessageType type) {
  if (!channel_) {
    return;
  }
  if (type == MessageType::kRefuse) {
    channel_->refuse(is_device_gone() ? RefuseReason::kDeviceGone : refuse_reason_,
                     to_string(environment_.settings->self) + ": " + detail_, incarnations_.newest());
  } else {
    channel_->send(own_ends(type));
  }
}

void Connection::start_timer(Event event, unsigned milliseconds) {
  timer_event_ = event;
  timer_.start(milliseconds);
}

/// Who lets others go first may wait for its turn for long. Where our main thread wants the connection too, that may take another
/// one sooner.
unsigned Connection::handshake_time_ms() const noexcept {
  const unsigned usual = environment_.settings->handshake_timeout_ms;
  return peer_pauses_ && !wanted_ ? kPatience * std::min(usual, UINT_MAX / kPatience) : usual;
}

void Connection::ask_for_receives() {
  PostReceives upcall{key_, link_, {}};
  if (key_.direction == Direction::kBoth) {
    upcall.queue_pairs = queue_pairs_->handles();
  } else if (key_.direction == Direction::kIncoming) {
    upcall.target_qpn = queue_pairs_->ends().front().qpn;
    upcall.incarnation = incarnation_;
  }
  environment_.say(std::move(upcall));
}

void Connection::tell_connected() {
  forgive();
  Connected upcall{key_, link_, remote_ends_};
  if (share_ != nullptr) {
    upcall.xrc = {queue_pairs_->handles().front(), share_->serial(), incoming_->xrc.srqs, incarnation_};
  }
  environment_.say(std::move(upcall));
  wanted_ = false;  // if there was memory to say so
}

void Connection::tell_linked() {
  const bool is_iwarp = environment_.port(key_.local_port)->address.link == Transport::kIwarp;
  forgive();
  environment_.say(Linked{key_, link_, queue_pairs_->handles(), remote_ends_, queue_pairs_->handshake(),
                          opened_by_us_ || !is_iwarp, cts_});
  wanted_ = false;
}

void Connection::destroy_queue_pairs() {
  if (!queue_pairs_) {
    return;
  }
  const bool is_last = share_ != nullptr && share_->is_last();
  const std::uint64_t sender = is_last ? share_->serial() : 0;
  share_ = nullptr;
  const std::uint64_t handshake = queue_pairs_->handshake().serial;
  const std::uint32_t first_qpn = queue_pairs_->ends().front().qpn;
  queue_pairs_.reset();
  if (handshake != 0 || sender != 0) {
    environment_.say(QueuePairsGone{key_, link_, handshake, first_qpn, std::exchange(cts_, 0), sender});
  }
}

void Connection::tell_failed() {
  if (share_ != nullptr) {
    share_->give_up();
  }
  std::string reason(direction_prefix(key_.direction));
  reason += "connection to " + to_string(key_.peer) + " (our port " + std::to_string(key_.local_port) + ", its port " +
            std::to_string(key_.remote_port) + "): " + detail_;
  if (attempt_ > 1) {
    reason += " (attempt " + std::to_string(attempt_) + ")";
  }
  environment_.say(Failed{key_, link_, std::move(reason), history_.text(), wanted_, peer_has_ended() || is_unwanted_,
                          has_no_device_ || is_device_gone()});
}

Message Connection::own_ends(MessageType type) const {
  Message message;
  message.header.type = type;
  message.address = environment_.port(key_.local_port)->address;
  message.ends = queue_pairs_->ends();
  if (type == MessageType::kRequest || type == MessageType::kReply) {
    message.xrc = queue_pairs_->xrc_numbers();
  }
  return message;
}

/// Doubles every time, so that a peer that is busy is left alone.
unsigned Connection::next_pause_ms() const noexcept {
  return std::min(kFirstRetryMilliseconds << std::min(pauses_, 5U), kLongestRetryMilliseconds);
}

/// Counts the next pause, and gives how long it is to be: not the same in all processes, so that a job that starts does not
/// come in waves.
unsigned Connection::spend_pause() noexcept {
  const unsigned longest = next_pause_ms();
  ++pauses_;
  spent_ms_ += longest;
  return longest / 2 + random_bits() % (longest / 2 + 1);
}

/// The peer is there: what has gone wrong before does not count any more.
void Connection::forgive() noexcept {
  pauses_ = 0;
  spent_ms_ = 0;
  unheard_ = 0;
}

}  // namespace fabric::cpc
