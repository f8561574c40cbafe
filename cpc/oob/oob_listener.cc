// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cpc/core/unknown_peers.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

/// How long to leave the backlog alone when the process has no descriptor left.
constexpr unsigned kPauseMilliseconds = 100;

SocketAddress local_end(int socket) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? from_sockaddr(storage)
                                                                                : SocketAddress();
}

}  // namespace

Result<std::unique_ptr<OobListener>> OobListener::open(event_base* loop, const Settings& settings,
                                                       OnRequest on_request) {
  assert_on_progress_thread();
  std::unique_ptr<OobListener> listener(new OobListener(loop, settings, std::move(on_request)));
  const Status v4 = listener->listen(AF_INET, listener->v4_, listener->port_v4_);
  const Status v6 = listener->listen(AF_INET6, listener->v6_, listener->port_v6_);
  if (!v4 && !v6) {
    return failure(v4.error().text + "; " + v6.error().text);
  }
  return listener;
}

OobListener::OobListener(event_base* loop, const Settings& settings, OnRequest on_request)
    : loop_(loop), settings_(settings), on_request_(std::move(on_request)), pause_over_(loop, [this] { resume(); }) {}

Status OobListener::listen(int family, Socket& socket, std::uint16_t& port) {
  const char* const name = family == AF_INET6 ? "listening on IPv6: " : "listening on IPv4: ";
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    return failure(std::string(name) + std::strerror(errno));
  }
  if (family == AF_INET6) {
    const int only = 1;  // IPv4 has its own socket
    (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  SocketAddress any;
  any.host.is_v6 = family == AF_INET6;
  sockaddr_storage storage;
  const socklen_t size = to_sockaddr(any, storage);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return failure(std::string(name) + std::strerror(errno));
  }
  port = local_end(fd.get()).port;
  socket.fd = std::move(fd);
  socket.watch = std::make_unique<Watch>(loop_, socket.fd.get(), Watch::For::kReading,
                                         [this, accepting = socket.fd.get()] { accept_from(accepting); });
  socket.watch->start();
  return {};
}

bool OobListener::is_full() const noexcept {
  return strangers_.size() >= kMaxStrangers || open_ >= settings_.limit;
}

void OobListener::accept_from(int fd) {
  while (!is_full()) {
    FileDescriptor accepted(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted) {
      admit(std::move(accepted));
      continue;
    }
    const int error_number = errno;
    if (error_number == ECONNABORTED || error_number == EINTR) {
      continue;
    }
    if (error_number != EAGAIN) {
      pause();  // no descriptor left, most likely: the socket stays readable, and without a pause the loop would spin
      pause_over_.start(kPauseMilliseconds);
    }
    return;
  }
  pause();
}

void OobListener::admit(FileDescriptor socket) {
  const HostAddress here = local_end(socket.get()).host;
  const auto is_here = [&](const HostAddress& one) { return one.is_v6 == here.is_v6 && one.bytes == here.bytes; };
  if (!settings_.only.empty() && std::none_of(settings_.only.begin(), settings_.only.end(), is_here)) {
    unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  set_channel_options(socket.get());
  ++open_;
  auto channel = std::make_unique<OobChannel>(loop_, settings_.cpc, std::move(socket), settings_.token, settings_.self,
                                              [this] { closed(); });
  channel->set_handler(this);
  const Channel* const key = channel.get();
  auto timer = std::make_unique<Timer>(loop_, [this, key] { turn_away(key); });
  timer->start(settings_.stranger_timeout_ms);
  strangers_.emplace(key, Stranger{std::move(channel), std::move(timer)});
}

void OobListener::turn_away(const Channel* channel) {
  strangers_.erase(channel);
  unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
}

/// There is room for another.
void OobListener::closed() {
  --open_;
  if (!pause_over_.running()) {
    resume();
  }
}

void OobListener::pause() {
  for (const Socket* socket : {&v4_, &v6_}) {
    if (socket->watch) {
      socket->watch->stop();
    }
  }
}

void OobListener::resume() {
  if (is_full()) {
    return;
  }
  for (const Socket* socket : {&v4_, &v6_}) {
    if (socket->watch) {
      socket->watch->start();
    }
  }
}

void OobListener::on_message(Channel& channel, Message message) {
  const auto found = strangers_.find(&channel);
  std::unique_ptr<Channel> known = std::move(found->second.channel);
  strangers_.erase(found);
  if (!pause_over_.running()) {
    resume();
  }
  on_request_(std::move(known), std::move(message));
}

void OobListener::on_lost(Channel& channel, std::string, bool) {
  if (static_cast<const OobChannel&>(channel).was_spoken_to()) {
    turn_away(&channel);
  } else {
    strangers_.erase(&channel);  // a peer that changed its mind: its turn came, and with it our own request
  }
}

}  // namespace fabric::cpc
