// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_channel.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/oob_stream.h"
#include "cpc/oob/oob_streams.h"
#include "cpc/queue_pairs/random_bits.h"

namespace fabric::cpc {
namespace {

// Between a PAUSE of the peer's and our next turn.
constexpr unsigned kFirstPauseMilliseconds = 250;
constexpr unsigned kLongestPauseMilliseconds = 8000;

}  // namespace

OobChannel::OobChannel(OobStreams& streams, const ChannelIdentity& identity, std::vector<SocketAddress> addresses,
                       const Gid& to, Message request)
    : streams_(streams),
      opener_(true),
      to_(to),
      peer_token_(identity.token),
      addresses_(std::move(addresses)),
      request_(std::move(request)) {
  assert_on_progress_thread();
  identity_ = identity;
  join();
}

OobChannel::OobChannel(OobStreams& streams, const JobToken& token, const Message& request)
    : streams_(streams), opener_(false), to_(request.address.gid) {
  const MessageHeader& header = request.header;
  identity_ = {token,          header.target,     header.sender, header.target_port, header.sender_port,
               header.attempt, header.incarnation};
}

OobChannel::~OobChannel() {
  if (stream_ != nullptr) {
    stream_->leave(*this);
  }
}

const CpcTraits& OobChannel::cpc() const noexcept {
  return streams_.environment().cpc;
}

/// By the time that the peer answers, the path to it is known: nothing else waits for it here.
void OobChannel::join() {
  if (PathQuestions* const questions = streams_.environment().questions; questions != nullptr) {
    asked_ = questions->ask(identity_.self_port, to_, [this] { join_stream(); });
    if (asked_ != nullptr) {
      return;
    }
  }
  join_stream();
}

void OobChannel::join_stream() {
  asked_.reset();
  fill_in_address(request_);
  joined_ = std::chrono::steady_clock::now();
  streams_.join(*this, identity_.peer, peer_token_, addresses_);
}

/// The path is known, if it is ever to be.
void OobChannel::fill_in_address(Message& message) const {
  if (const PathQuestions* const questions = streams_.environment().questions; questions != nullptr) {
    questions->fill_in(identity_.self_port, to_, message.address);
  }
}

void OobChannel::on_joined(OobStream& stream, bool is_open) noexcept {
  on_restart();
  stream_ = &stream;
  was_open_ = is_open;
  identity_.token = stream.token();
}

void OobChannel::on_restart() noexcept {
  is_requested_ = false;
  is_answered_ = false;
  was_open_ = false;
}

const Message* OobChannel::take_request() noexcept {
  if (!opener_ || is_requested_) {
    return nullptr;
  }
  is_requested_ = true;
  request_left_ = true;
  return &request_;
}

/// Until the request is out there is nothing that a message could be an answer to.
void OobChannel::send(Message message) {
  assert_on_progress_thread();
  if (stream_ == nullptr || !has_spoken()) {
    return;
  }
  const MessageType type = message.header.type;
  message.header = header(type);
  fill_in_address(message);
  stream_->send(std::move(message));
  confirm_sent_ |= type == MessageType::kConfirm;
  has_answered_ |= type == MessageType::kReply || type == MessageType::kRefuse;
}

MessageHeader OobChannel::header(MessageType type) const noexcept {
  MessageHeader made = identity_.outgoing(type);
  made.by_opener = opener_;
  return made;
}

bool OobChannel::is_meant(const MessageHeader& header) const noexcept {
  return header.by_opener != opener_ && identity_.is_of_peer(header);
}

bool OobChannel::takes(MessageType type) const noexcept {
  switch (type) {
    case MessageType::kRequest:
      return false;
    case MessageType::kTarget:
      return opener_ && cpc().one_way;
    case MessageType::kReply:
      return opener_;
    case MessageType::kConfirm:
      return !opener_;
    case MessageType::kPause:
      return !confirm_sent_;
    case MessageType::kRefuse:
    case MessageType::kClose:
      return true;
  }
  return false;
}

Message OobChannel::closing() const {
  Message message;
  message.header = header(MessageType::kClose);
  message.confirm_read = confirm_read_;
  return message;
}

/// The last thing that the stream does in an event: the owner may destroy this.
void OobChannel::on_message(Message message) {
  switch (message.header.type) {
    case MessageType::kPause:
      leave_quietly();
      if (opener_) {
        come_back_later();
        return;
      }
      break;
    case MessageType::kClose: {
      std::string reason = stream_->remote() + " closed the channel";
      leave_quietly();
      handler_->on_lost(*this, std::move(reason), confirm_sent_ && message.confirm_read);
      return;
    }
    default:
      break;
  }
  is_answered_ |= message.header.type != MessageType::kTarget;
  confirm_read_ |= message.header.type == MessageType::kConfirm;
  handler_->on_message(*this, std::move(message));
}

/// The peer knows that it is over.
void OobChannel::leave_quietly() noexcept {
  stream_->drop(*this);
}

/// The peer's main thread thinks, and others wait for a place at its listener. The longer it does, the less we ask.
void OobChannel::come_back_later() {
  const unsigned longest = std::min(kFirstPauseMilliseconds << std::min(pauses_++, 5U), kLongestPauseMilliseconds);
  pause_ = std::make_unique<Timer>(streams_.environment().dialing.loop, [this] { join(); });
  pause_->start(longest / 2 + random_bits() % (longest / 2 + 1));
}

/// The stream has given way to others, and the peer was told so.
void OobChannel::on_paused() {
  if (opener_) {
    join();
    return;
  }
  Message pause;
  pause.header = identity_.incoming(MessageType::kPause);
  handler_->on_message(*this, std::move(pause));
}

/// One that was there before may have been closed for want of use just when our request went out: that costs nothing.
void OobChannel::on_stream_lost(const std::string& reason, unsigned tried_ms, bool nobody_listens) {
  if (opener_ && was_open_ && !is_answered_) {
    join();
    return;
  }
  const auto here = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - joined_);
  tried_ms_ = std::min(tried_ms, static_cast<unsigned>(here.count()));
  nobody_listens_ = nobody_listens;
  handler_->on_lost(*this, reason, false);
}

}  // namespace fabric::cpc
