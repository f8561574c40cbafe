// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_channel.h"

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/random_bits.h"

namespace fabric::cpc {
namespace {

// Between a PAUSE of the peer's and our next turn.
constexpr unsigned kFirstPauseMilliseconds = 250;
constexpr unsigned kLongestPauseMilliseconds = 8000;

/// "10.0.0.1:4000", the other end of a socket.
std::string remote_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return "the peer";
  }
  return to_string(from_sockaddr(storage));
}

}  // namespace

OobChannel::OobChannel(const DialEnvironment& environment, const CpcTraits& cpc, const ChannelIdentity& identity,
                       std::vector<SocketAddress> addresses, Message request)
    : loop_(environment.loop), cpc_(cpc), opener_(true), environment_(environment), addresses_(std::move(addresses)) {
  assert_on_progress_thread();
  identity_ = identity;
  request_ = std::move(request);
  requested_ = true;
  ask_for_turn();
}

OobChannel::OobChannel(event_base* loop, const CpcTraits& cpc, FileDescriptor socket, const JobToken& token,
                       const ProcessName& self, std::function<void()> closed)
    : loop_(loop), cpc_(cpc), opener_(false), closed_(std::move(closed)), socket_(std::move(socket)) {
  assert_on_progress_thread();
  identity_.token = token;
  identity_.self = self;
  start_reading();
  say_hello();
}

OobChannel::~OobChannel() {
  if (closed_) {
    closed_();
  }
}

void OobChannel::ask_for_turn() {
  ticket_ = environment_.throttle->ask([this] { dial(); }, [this] { yield(); });
}

void OobChannel::dial() {
  dialed_ = std::chrono::steady_clock::now();
  dialer_ = std::make_unique<Dialer>(loop_, *environment_.shortage, addresses_, environment_.timeout_ms,
                                     [this](Result<FileDescriptor> socket) { on_dialed(std::move(socket)); });
}

/// Others wait. If all that happens here is that the peer thinks, they go first; the peer is told, so that it does not
/// take us for dead. With a TARGET it thinks still: that comes before its main thread has been asked.
void OobChannel::yield() {
  if (dialer_) {
    yield_dial();
    return;
  }
  if (!socket_ || is_answered_ || input_size_ > 0 || !output_.empty() || !all_is_read()) {
    return;
  }
  if (key_) {
    Message pause;
    pause.header.type = MessageType::kPause;
    put(std::move(pause));
  } else {
    try_first(addresses_.size() > 1 ? 1 : 0);
  }
  start_anew();
  ask_for_turn();
}

/// An address that does not answer is left for the next one, in the next turn; altogether each gets its time.
void OobChannel::yield_dial() {
  if (tried_ms() >= addresses_.size() * environment_.timeout_ms) {
    lose(to_string(dialer_->address()) + ": no answer, nor from its other addresses, in " + std::to_string(tried_ms()) +
         " ms");
    return;
  }
  dialed_ms_ = tried_ms();
  dialed_ = {};
  try_first(dialer_->begun());
  dialer_.reset();
  ticket_.reset();
  ask_for_turn();
}

/// Without a turn, and as if nothing had been sent.
void OobChannel::start_anew() {
  reading_.reset();
  writing_.reset();
  socket_ = FileDescriptor();
  key_.reset();
  hello_due_.reset();
  output_.clear();
  input_size_ = 0;
  is_answered_ = false;
  ticket_.reset();
}

/// The peer's main thread thinks, and others wait for a place at its listener. The longer it does, the less we ask.
void OobChannel::come_back_later() {
  start_anew();
  const unsigned longest = std::min(kFirstPauseMilliseconds << std::min(pauses_++, 5U), kLongestPauseMilliseconds);
  pause_ = std::make_unique<Timer>(loop_, [this] { ask_for_turn(); });
  pause_->start(longest / 2 + random_bits() % (longest / 2 + 1));
}

bool OobChannel::defer() {
  if (opener_ || !requested_ || has_answered_ || !output_.empty() || input_size_ > 0 || !all_is_read()) {
    return false;
  }
  Message pause;
  pause.header.type = MessageType::kPause;
  send(pause);
  reading_->stop();
  pause.header = identity_.incoming(MessageType::kPause);
  handler_->on_message(*this, std::move(pause));
  return true;
}

void OobChannel::start_reading() {
  remote_ = remote_of(socket_.get());
  reading_ = std::make_unique<Watch>(loop_, socket_.get(), Watch::For::kReading, [this] { on_readable(); });
  writing_ = std::make_unique<Watch>(loop_, socket_.get(), Watch::For::kWriting, [this] { flush(); });
  reading_->start();
}

void OobChannel::on_dialed(Result<FileDescriptor> socket) {
  const std::size_t tried = dialer_->begun();
  nobody_listens_ = !socket && dialer_->all_refuse();
  dialer_.reset();
  if (!socket) {
    lose(socket.error().text);
    return;
  }
  dialed_ = {};
  dialed_ms_ = 0;
  try_first(tried - 1);
  socket_ = std::move(*socket);
  start_reading();
  if (addresses_.size() > 1) {
    hello_due_ = std::make_unique<Timer>(loop_, [this] { try_another(); });
    hello_due_->start(environment_.timeout_ms);
  }
}

void OobChannel::try_first(std::size_t address) {
  std::rotate(addresses_.begin(), addresses_.begin() + static_cast<std::ptrdiff_t>(address), addresses_.end());
}

/// Whoever has accepted there says nothing: another service, or a host with a bridge of the same address. If it is the peer after
/// all, which cannot run just now, its turn comes again.
void OobChannel::try_another() {
  try_first(1);
  start_anew();
  ask_for_turn();
}

unsigned OobChannel::tried_ms() const noexcept {
  using Clock = std::chrono::steady_clock;
  const auto now = dialed_ == Clock::time_point() ? Clock::duration() : Clock::now() - dialed_;
  return dialed_ms_ + static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

/// Until the listener has said HELLO there is nothing that a message could be an answer to.
void OobChannel::send(Message message) {
  assert_on_progress_thread();
  if (key_) {
    put(std::move(message));
  }
}

void OobChannel::put(Message message) {
  message.header = identity_.outgoing(message.header.type);
  confirm_queued_ |= message.header.type == MessageType::kConfirm;
  has_answered_ |= message.header.type == MessageType::kReply || message.header.type == MessageType::kRefuse;
  std::vector<std::byte> bytes = encode(message);
  key_->sign(bytes);
  output_.insert(output_.end(), bytes.begin(), bytes.end());
  flush();
}

void OobChannel::say_hello() {
  const Nonce nonce = fresh_nonce();
  key_.emplace(identity_.token, nonce);
  const auto hello = encode_hello(nonce);
  output_.assign(hello.begin(), hello.end());
  flush();
}

/// The listener's first word. As deliver().
bool OobChannel::take_hello() {
  const Result<std::optional<Nonce>> nonce = decode_hello(std::span(input_.data(), input_size_));
  if (!nonce) {
    lose_malformed(nonce.error());
    return true;
  }
  if (*nonce) {
    hello_due_.reset();
    consume(kHelloBytes);
    key_.emplace(identity_.token, **nonce);
    put(request_);
  }
  return false;
}

void OobChannel::flush() {
  const ssize_t sent = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
    // The socket is dead. The reading side reports it, after what the peer may have said before.
    output_.clear();
    writing_->stop();
    return;
  }
  if (sent > 0) {
    request_left_ |= opener_;
    output_.erase(output_.begin(), output_.begin() + sent);
  }
  if (output_.empty()) {
    confirm_sent_ = confirm_queued_;
    writing_->stop();
  } else {
    writing_->start();
  }
}

void OobChannel::on_readable() {
  // What came together with the last message goes first. Both calls may have been the end of this object.
  if (!deliver() && receive()) {
    (void)deliver();
  }
}

/// Reads what there is. False if the channel was lost.
bool OobChannel::receive() {
  const ssize_t size = recv(socket_.get(), input_.data() + input_size_, input_.size() - input_size_, MSG_DONTWAIT);
  if (size > 0) {
    was_spoken_to_ = true;
    input_size_ += static_cast<std::size_t>(size);
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return true;
  }
  if (size == 0) {
    lose(remote_ + " closed the channel", confirm_sent_);
  } else {
    lose(remote_ + ": " + std::strerror(errno));
  }
  return false;
}

bool OobChannel::all_is_read() const noexcept {
  int unread = 0;
  return ioctl(socket_.get(), FIONREAD, &unread) == 0 && unread == 0;
}

/// Hands on the next message if it is complete. True if that, or the end of the channel, has been reported.
bool OobChannel::deliver() {
  const std::span<const std::byte> received(input_.data(), input_size_);
  if (received.empty()) {
    return false;
  }
  if (!key_) {
    return take_hello();
  }
  Result<std::optional<MessageHeader>> header = decode_header(received);
  if (!header) {
    lose_malformed(header.error());
    return true;
  }
  if (!*header) {
    return false;
  }
  if (Status fits = check(**header); !fits) {
    lose(remote_ + ": " + fits.error().text);
    return true;
  }
  const std::size_t length = (*header)->length;
  if (received.size() < length) {
    return false;
  }
  Result<Message> message = decode_message(received.first(length));
  if (!message) {
    lose(remote_ + ": " + message.error().text);
    return true;
  }
  if (!key_->has_signed(received.first(length))) {
    lose(remote_ + ": a " + to_string(message->header.type) + " without proof: the sender does not belong to this job");
    return true;
  }
  consume(length);
  if (opener_ && message->header.type == MessageType::kPause) {
    come_back_later();
    return true;
  }
  is_answered_ |= message->header.type != MessageType::kTarget;
  if (!requested_) {
    requested_ = true;
    identity_.peer = message->header.sender;
    identity_.peer_port = message->header.sender_port;
    identity_.self_port = message->header.target_port;
    identity_.attempt = message->header.attempt;
    identity_.incarnation = message->header.incarnation;
  }
  handler_->on_message(*this, std::move(*message));
  return true;
}

void OobChannel::consume(std::size_t bytes) {
  std::copy(input_.begin() + static_cast<std::ptrdiff_t>(bytes),
            input_.begin() + static_cast<std::ptrdiff_t>(input_size_), input_.begin());
  input_size_ -= bytes;
  if (input_size_ > 0) {
    reading_->call_soon();
  }
}

/// Whoever says so has not proved who it is: there will be further attempts.
void OobChannel::lose_malformed(const Error& error) {
  const auto version = other_version(std::span(input_.data(), input_size_));
  lose(remote_ + (version ? speaks_other_version(*version) : ": " + error.text));
}

/// Compares a header with the identity of the channel, before the rest of its message is waited for.
Status OobChannel::check(const MessageHeader& header) const {
  if (!belongs(header.type)) {
    return failure(std::string("an unexpected ") + to_string(header.type));
  }
  if (header.target != identity_.self) {
    return failure("a message for " + to_string(header.target));
  }
  if (requested_ && !identity_.is_of_peer(header)) {
    return failure(std::string("a ") + to_string(header.type) + " of another connection");
  }
  return {};
}

bool OobChannel::belongs(MessageType type) const noexcept {
  switch (type) {
    case MessageType::kRequest:
      return !opener_ && !requested_;
    case MessageType::kTarget:
      return opener_ && cpc_.one_way;
    case MessageType::kReply:
      return opener_;
    case MessageType::kConfirm:
      return !opener_ && requested_;
    case MessageType::kPause:
      return opener_ ? !confirm_queued_ : requested_;
    case MessageType::kRefuse:
      return requested_;
  }
  return false;
}

void OobChannel::lose(std::string reason, bool confirm_taken) {
  if (reading_) {
    reading_->stop();
    writing_->stop();
  }
  hello_due_.reset();
  handler_->on_lost(*this, std::move(reason), confirm_taken);
}

}  // namespace fabric::cpc
