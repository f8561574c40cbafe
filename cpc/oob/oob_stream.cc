// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_stream.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/oob_channel.h"
#include "cpc/oob/oob_streams.h"

namespace fabric::cpc {

OobStream::OobStream(OobStreams& all, const ProcessName& peer, const JobToken& token,
                     std::vector<SocketAddress> addresses)
    : all_(all),
      call_(std::make_unique<OobCall>(all.environment().dialing, std::move(addresses),
                                      place_of(peer, all.environment().self), static_cast<OobCaller&>(*this))),
      peer_(peer),
      token_(token),
      since_(std::chrono::steady_clock::now()) {
  assert_on_progress_thread();
}

OobStream::OobStream(OobStreams& all, FileDescriptor socket, const SocketAddress& from, OobHost& host)
    : all_(all),
      host_(&host),
      token_(all.environment().token),
      since_(std::chrono::steady_clock::now()),
      remote_(from) {
  assert_on_progress_thread();
  use(std::move(socket));
  say_hello();
}

OobStream::~OobStream() {
  for (OobChannel* const channel : channels_) {
    channel->on_left();
  }
}

// ---- The way to the peer

/// Whatever waits for it goes out now.
void OobStream::on_turn() {
  if (is_open()) {
    open_channels();
  } else {
    call_->dial();
  }
}

void OobStream::on_dialed(FileDescriptor socket) {
  remote_ = call_->address();
  use(std::move(socket));
  call_->wait_for_hello();
}

void OobStream::on_not_dialed(std::string reason) {
  while (all_.close_idle()) {  // it may be a descriptor that was missing
  }
  lose(std::move(reason));
}

void OobStream::on_silence() {
  call_->leave_address();
  call_again();
}

void OobStream::on_others_wait() {
  if (call_->is_dialing()) {
    call_->yield_dial();
  } else if (is_open()) {
    (void)give_way();
  } else if (socket_ && input_size_ == 0 && all_is_read()) {
    on_silence();
  }
}

/// As if nothing had been sent.
void OobStream::call_again() {
  start_anew();
  call_->ask_for_turn();
}

void OobStream::start_anew() {
  reading_.reset();
  writing_.reset();
  socket_ = FileDescriptor();
  key_.reset();
  call_->give_up();
  output_.clear();
  input_size_ = 0;
  sent_ = received_ = 0;
  for (OobChannel* const channel : channels_) {
    channel->on_restart();
  }
}

void OobStream::use(FileDescriptor socket) {
  socket_ = std::move(socket);
  event_base* const loop = all_.environment().dialing.loop;
  reading_ = std::make_unique<Watch>(loop, socket_.get(), Watch::For::kReading, [this] { on_readable(); });
  writing_ = std::make_unique<Watch>(loop, socket_.get(), Watch::For::kWriting, [this] { flush(); });
  reading_->start();
}

void OobStream::say_hello() {
  const Nonce nonce = fresh_nonce();
  key_.emplace(token_, nonce);
  const auto hello = encode_hello(nonce);
  output_.assign(hello.begin(), hello.end());
  flush();
}

/// The listener's first word. As deliver().
bool OobStream::take_hello() {
  const Result<std::optional<Nonce>> nonce = decode_hello(std::span(input_.data(), input_size_));
  if (!nonce) {
    lose_malformed(nonce.error());
    return true;
  }
  if (*nonce) {
    call_->hello_has_come();
    consume(kHelloBytes);
    key_.emplace(token_, **nonce);
    open_channels();
  }
  return false;
}

// ---- Channels

void OobStream::join(OobChannel& channel) {
  if (channels_.empty()) {
    since_ = std::chrono::steady_clock::now();
    all_.on_busy(*this);
  }
  try {
    channels_.push_back(&channel);
    channel.on_joined(*this, is_open());
    if (!call_ || (is_open() && call_->has_turn())) {
      open_channels();
    } else if (channels_.size() == 1 && !(is_open() && call_->ask_for_turn_at_once())) {
      call_again();  // while it waits for its turn it takes no socket
    }
  } catch (...) {
    drop(channel);
    throw;
  }
}

void OobStream::open_channels() {
  for (OobChannel* const channel : channels_) {
    if (const Message* const request = channel->take_request(); request != nullptr) {
      Message message = *request;
      message.header = channel->header(MessageType::kRequest);
      put(std::move(message));
    }
  }
}

void OobStream::leave(OobChannel& channel) noexcept {
  if (key_ && channel.has_spoken()) {
    try {
      put(channel.closing());
    } catch (const std::bad_alloc&) {  // without a word it is over all the same
      (void)shutdown(socket_.get(), SHUT_RDWR);
    }
  }
  drop(channel);
}

void OobStream::drop(OobChannel& channel) noexcept {
  std::erase(channels_, &channel);
  channel.on_left();
  rest();
}

/// With the last channel the turn ends, too.
void OobStream::rest() noexcept {
  if (!channels_.empty() || is_closed_) {
    return;
  }
  if (!is_open()) {
    close();
    return;
  }
  if (call_) {
    call_->end_turn();
  }
  since_ = std::chrono::steady_clock::now();
  all_.on_idle(*this);
}

bool OobStream::all_wait() const noexcept {
  return std::all_of(channels_.begin(), channels_.end(), [](const OobChannel* one) { return one->waits(); });
}

/// The first of them, which leaves. Null if there is none.
OobChannel* OobStream::take_channel(bool of_peer_only) noexcept {
  const auto found = std::find_if(channels_.begin(), channels_.end(),
                                  [=](const OobChannel* one) { return !of_peer_only || !one->opened_by_us(); });
  if (found == channels_.end()) {
    return nullptr;
  }
  OobChannel* const channel = *found;
  channels_.erase(found);
  channel->on_left();
  return channel;
}

bool OobStream::give_way() {
  if (!is_open() || channels_.empty() || input_size_ > 0 || !output_.empty() || !all_is_read() || !all_wait()) {
    return false;
  }
  for (const OobChannel* const channel : channels_) {
    Message pause;
    pause.header = channel->header(MessageType::kPause);
    put(std::move(pause));
  }
  flush();
  if (call_) {
    call_again();
  } else {
    close();
  }
  while (OobChannel* const channel = take_channel(call_ != nullptr)) {
    run_or_lose([&] { channel->on_paused(); });
  }
  rest();
  return true;
}

// ---- What is said

void OobStream::send(Message message) {
  if (key_) {
    put(std::move(message));
  }
}

/// It leaves with what else is said in this turn of the loop.
void OobStream::put(Message message) {
  const std::vector<std::byte> bytes = encode(message);
  const std::size_t at = output_.size();
  output_.insert(output_.end(), bytes.begin(), bytes.end());
  key_->sign(std::span(output_).subspan(at), {is_accepted(), sent_++});
  writing_->call_soon();
}

void OobStream::flush() noexcept {
  const ssize_t sent = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
    // The socket is dead. The reading side reports it, after what the peer may have said before.
    output_.clear();
    writing_->stop();
    return;
  }
  if (sent > 0) {
    output_.erase(output_.begin(), output_.begin() + sent);
  }
  if (output_.empty()) {
    writing_->stop();
  } else {
    writing_->start();
  }
}

// ---- What is heard

void OobStream::on_readable() {
  // What came together with the last message goes first.
  if (!deliver() && !is_closed_ && socket_ && receive()) {
    (void)deliver();
  }
  if (takes_over_ && is_open() && input_size_ == 0) {
    takes_over_ = false;
    all_.take_over(*this);
  }
}

/// Reads what there is. False if the stream was lost.
bool OobStream::receive() {
  const ssize_t size = recv(socket_.get(), input_.data() + input_size_, input_.size() - input_size_, MSG_DONTWAIT);
  if (size > 0) {
    was_spoken_to_ = true;
    input_size_ += static_cast<std::size_t>(size);
    return true;
  }
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return true;
  }
  lose(remote() + (size == 0 ? std::string(" closed the channel") : std::string(": ") + std::strerror(errno)));
  return false;
}

bool OobStream::all_is_read() const noexcept {
  int unread = 0;
  return ioctl(socket_.get(), FIONREAD, &unread) == 0 && unread == 0;
}

/// Handles the next message if it is complete. True if that, or the end of the stream, has been dealt with.
bool OobStream::deliver() {
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
    lose(remote() + ": " + fits.error().text);
    return true;
  }
  const std::size_t length = (*header)->length;
  if (received.size() < length) {
    return false;
  }
  Result<Message> message = decode_message(received.first(length));
  if (!message) {
    lose(remote() + ": " + message.error().text);
    return true;
  }
  if (!key_->has_signed(received.first(length), {!is_accepted(), received_})) {
    lose(remote() + ": a " + to_string(message->header.type) +
         " without proof: the sender does not belong to this job");
    return true;
  }
  ++received_;
  consume(length);
  dispatch(std::move(*message));
  return true;
}

void OobStream::consume(std::size_t bytes) noexcept {
  std::copy(input_.begin() + static_cast<std::ptrdiff_t>(bytes),
            input_.begin() + static_cast<std::ptrdiff_t>(input_size_), input_.begin());
  input_size_ -= bytes;
  if (input_size_ > 0) {
    reading_->call_soon();
  }
}

/// Looks at a header before the rest of its message is waited for.
Status OobStream::check(const MessageHeader& header) const {
  const bool is_request = header.type == MessageType::kRequest && header.by_opener;
  const OobChannel* const channel = find(header);
  if (channel != nullptr ? !channel->takes(header.type) : header.type == MessageType::kRequest ? !is_request : !peer_) {
    return failure(std::string("an unexpected ") + to_string(header.type));
  }
  if (header.target != all_.environment().self) {
    return failure("a message for " + to_string(header.target));
  }
  if (peer_ && header.sender != *peer_) {
    return failure("a message of " + to_string(header.sender) + ", not of " + to_string(*peer_));
  }
  return {};
}

OobChannel* OobStream::find(const MessageHeader& header) const noexcept {
  const auto found =
      std::find_if(channels_.begin(), channels_.end(), [&](const OobChannel* one) { return one->is_meant(header); });
  return found == channels_.end() ? nullptr : *found;
}

/// A message of a channel that is closed here crossed our CLOSE.
void OobStream::dispatch(Message message) {
  if (message.header.type == MessageType::kRequest) {
    begin(std::move(message));
  } else if (OobChannel* const channel = find(message.header); channel != nullptr) {
    channel->on_message(std::move(message));
  }
}

/// A peer opens a channel. Over a connection that we have made it takes one of our turns.
void OobStream::begin(Message request) {
  auto channel = std::make_unique<OobChannel>(all_, token_, request);
  if (!peer_) {
    peer_ = request.header.sender;
    all_.on_known(*this);
    host_->on_known(*this);
    takes_over_ = true;
  }
  if (call_ && !call_->take_turn()) {
    Message pause;
    pause.header = channel->header(MessageType::kPause);
    put(std::move(pause));
    return;
  }
  if (channels_.empty()) {
    since_ = std::chrono::steady_clock::now();
    all_.on_busy(*this);
  }
  channels_.push_back(channel.get());
  channel->on_joined(*this, true);
  all_.environment().on_request(std::move(channel), std::move(request));
}

// ---- The end

/// Whoever says so has not proved who it is: there will be further attempts.
void OobStream::lose_malformed(const Error& error) {
  const auto version = other_version(std::span(input_.data(), input_size_));
  lose(remote() + (version ? speaks_other_version(*version) : ": " + error.text));
}

void OobStream::lose(std::string reason) {
  const unsigned tried_ms = call_ ? call_->tried_ms() : 0;
  const bool nobody_listens = call_ && call_->nobody_listens();
  close();
  while (OobChannel* const channel = take_channel(false)) {
    run_or_lose([&] { channel->on_stream_lost(reason, tried_ms, nobody_listens); });
  }
}

void OobStream::close() noexcept {
  if (std::exchange(is_closed_, true)) {
    return;
  }
  if (socket_ && !output_.empty()) {
    flush();
  }
  reading_.reset();
  writing_.reset();
  socket_ = FileDescriptor();
  key_.reset();
  input_size_ = 0;
  if (call_) {
    call_->give_up();
  }
  if (host_ != nullptr) {
    host_->on_closed(*this);
  }
  all_.on_closed(*this);
}

}  // namespace fabric::cpc
