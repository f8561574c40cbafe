// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_dialer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

constexpr int kKeepaliveIdleSeconds = 20;
constexpr int kKeepaliveIntervalSeconds = 10;
constexpr int kKeepaliveProbes = 4;
constexpr unsigned kUnacknowledgedMilliseconds = 60000;

template <class T>
void set_option(int socket, int level, int option, T value) noexcept {
  // A system without one of them still has working channels.
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void set_channel_options(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
}

Dialer::Dialer(event_base* loop, ShortageReport& shortage, std::vector<SocketAddress> addresses, unsigned timeout_ms,
               Done done)
    : loop_(loop),
      shortage_(shortage),
      addresses_(std::move(addresses)),
      timeout_ms_(timeout_ms),
      done_(std::move(done)),
      timer_(loop, [this] { on_timer(); }) {
  timer_.start(0);
}

void Dialer::on_timer() {
  if (watch_) {
    note_failure("no answer within " + std::to_string(timeout_ms_) + " ms");
  }
  try_next();
}

void Dialer::on_writable() {
  int error_number = 0;
  socklen_t size = sizeof error_number;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &size) != 0) {
    error_number = errno;
  }
  if (error_number != 0) {
    note_error(error_number);
    try_next();
    return;
  }
  watch_.reset();
  finish(std::move(socket_));
}

void Dialer::try_next() {
  timer_.stop();
  watch_.reset();
  while (next_ < addresses_.size()) {
    // Before the next one is opened: its descriptor may be the last, and closing it changes errno.
    socket_ = FileDescriptor();
    const int error_number = begin(addresses_[next_++]);
    if (error_number == 0) {
      watch_ = std::make_unique<Watch>(loop_, socket_.get(), Watch::For::kWriting, [this] { on_writable(); });
      watch_->start();
      timer_.start(timeout_ms_);
      return;
    }
    note_error(error_number);
    if (!socket_ && is_shortage(error_number)) {
      shortage_.tell("opening a TCP connection", error_number);
      break;
    }
  }
  finish(failure(failures_.empty() ? "the peer has no address that can be reached from this host" : failures_));
}

/// Returns 0 if the connection is under way or made, else what went wrong.
int Dialer::begin(const SocketAddress& address) {
  socket_ =
      FileDescriptor(socket(address.host.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) {
    return errno;
  }
  set_channel_options(socket_.get());
  sockaddr_storage storage;
  const socklen_t size = to_sockaddr(address, storage);
  const bool started = connect(socket_.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0;
  return started || errno == EINPROGRESS ? 0 : errno;
}

void Dialer::note_failure(const std::string& why) {
  failures_ += (failures_.empty() ? "" : "; ") + to_string(addresses_[next_ - 1]) + ": " + why;
}

void Dialer::note_error(int error_number) {
  refused_ += error_number == ECONNREFUSED ? 1 : 0;
  note_failure(describe_errno(error_number));
}

void Dialer::finish(Result<FileDescriptor> result) {
  timer_.stop();
  const Done done = done_;  // a copy: it may destroy us
  done(std::move(result));
}

}  // namespace fabric::cpc
