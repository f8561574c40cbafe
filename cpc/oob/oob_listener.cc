// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "common/base/error_text.h"
#include "cpc/core/unknown_peers.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

/// How long to leave the backlog alone when the process has no descriptor left.
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
/// Until one is free on every address that is listened on.
constexpr unsigned kPortsTried = 16;

SocketAddress local_end(int socket) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) == 0 ? from_sockaddr(storage)
                                                                                : SocketAddress();
}

/// True if a peer waits in the backlog of a listening socket.
bool somebody_waits(int socket) noexcept {
  pollfd asked{socket, POLLIN, 0};
  return poll(&asked, 1, 0) == 1;
}

}  // namespace

Result<std::unique_ptr<OobListener>> OobListener::open(event_base* loop, const Settings& settings,
                                                       OobStreams& streams) {
  assert_on_progress_thread();
  std::unique_ptr<OobListener> listener(new OobListener(loop, settings, streams));
  const Result<std::uint16_t> v4 = listener->listen(false);
  const Result<std::uint16_t> v6 = listener->listen(true);
  if (!v4 && !v6) {
    return failure("on IPv4: " + v4.error().text + "; on IPv6: " + v6.error().text);
  }
  listener->port_v4_ = v4.value_or(0);
  listener->port_v6_ = v6.value_or(0);
  for (Socket& socket : listener->sockets_) {
    OobListener* const self = listener.get();
    socket.watch = std::make_unique<Watch>(loop, socket.fd.get(), Watch::For::kReading,
                                           [self, fd = socket.fd.get()] { self->accept_from(fd); });
    socket.watch->start();
  }
  return listener;
}

OobListener::OobListener(event_base* loop, const Settings& settings, OobStreams& streams)
    : loop_(loop), settings_(settings), streams_(streams), pause_over_(loop, [this] { resume(); }) {
  // The application needs descriptors too, and strangers must not have its last.
  constexpr std::size_t kPart = 16;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    most_unknown_ = std::clamp<std::size_t>(limit.rlim_cur / kPart, 2, kMaxUnknown);
  }
}

/// Gives the port.
Result<std::uint16_t> OobListener::listen(bool is_v6) {
  std::vector<HostAddress> addresses;
  if (settings_.only.empty()) {
    addresses.push_back({is_v6, 0, {}});
  }
  std::copy_if(settings_.only.begin(), settings_.only.end(), std::back_inserter(addresses),
               [is_v6](const HostAddress& one) { return one.is_v6 == is_v6; });
  Status good = failure("no address may be used");
  for (unsigned i = 0; i < kPortsTried && !addresses.empty(); ++i) {
    const std::size_t before = sockets_.size();
    std::uint16_t port = 0;
    good = listen(addresses, port);
    if (good) {
      return port;
    }
    sockets_.resize(before);
  }
  return tl::unexpected(good.error());
}

/// The first address gets any port, and the others the same, which somebody else may have there.
Status OobListener::listen(const std::vector<HostAddress>& addresses, std::uint16_t& port) {
  for (const HostAddress& address : addresses) {
    Result<FileDescriptor> fd = listening_socket({address, port});
    if (!fd) {
      return tl::unexpected(std::move(fd).error());
    }
    port = local_end(fd->get()).port;
    sockets_.push_back({std::move(*fd), nullptr});
  }
  return {};
}

Result<FileDescriptor> OobListener::listening_socket(const SocketAddress& address) const {
  FileDescriptor fd(::socket(address.host.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    return failure(describe_errno(errno));
  }
  if (address.host.is_v6) {
    const int only = 1;  // IPv4 has its own socket
    (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  set_channel_options(fd.get());  // which sockets that are accepted inherit
  sockaddr_storage storage;
  const socklen_t size = to_sockaddr(address, storage);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return failure(to_string(address) + ": " + describe_errno(errno));
  }
  return fd;
}

bool OobListener::is_full() const noexcept {
  return unknown_ >= most_unknown_ || accepted_.size() >= settings_.limit;
}

void OobListener::accept_from(int fd) {
  for (;;) {
    if (is_full()) {
      if (!somebody_waits(fd)) {
        return;
      }
      if (!make_room()) {
        pause(kPatience);
        return;
      }
    }
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    FileDescriptor accepted(accept4(fd, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted) {
      admit(std::move(accepted), from_sockaddr(from));
      continue;
    }
    const int error_number = errno;
    if (error_number == ECONNABORTED || error_number == EINTR) {
      continue;
    }
    if (error_number == EAGAIN) {
      return;
    }
    if (!make_room()) {
      wait_for_descriptors(error_number);
      return;
    }
  }
}

/// What is in the backlog stays there. Without a pause the loop would spin: the listening socket is readable.
void OobListener::wait_for_descriptors(int error_number) {
  pause(kPauseWithoutDescriptors);
  settings_.shortage.tell("accepting a TCP connection", error_number);
}

void OobListener::admit(FileDescriptor socket, const SocketAddress& from) {
  std::list<Accepted> made(1);  // of which nobody knows until there was memory for all of it
  const Place place = made.begin();
  place->from = from.host;
  place->timer = std::make_unique<Timer>(loop_, [this, place] { turn_away(place); });
  place->timer->start(settings_.unknown_timeout_ms);
  place->stream = &streams_.accept(std::move(socket), from, *this);
  accepted_.splice(accepted_.end(), made);
  ++unknown_;
}

/// Others wait. True if a socket that was accepted has been closed for them.
bool OobListener::make_room() {
  if (unknown_ < most_unknown_) {
    while (streams_.close_idle()) {
      if (!is_full()) {
        return true;
      }
    }
    if (defer_one()) {
      return true;
    }
  }
  return turn_one_away();
}

/// One that waits for our main thread comes back later. While the main thread computes, the backlog must not fill up: then
/// the peers could not tell that we are there.
bool OobListener::defer_one() {
  const auto due = Clock::now() - kPatience;
  return std::any_of(accepted_.begin(), accepted_.end(), [due](const Accepted& one) {
    return !one.is_unknown() && one.stream->since() <= due && one.stream->give_way();  // then it is gone, and forgotten
  });
}

/// Of the host that has the most unknown peers here, the one that has been silent for longest: a host all of whose sockets
/// are silent keeps out nobody but itself.
bool OobListener::turn_one_away() {
  const auto due = Clock::now() - kPatience;
  Place chosen = accepted_.end();
  std::ptrdiff_t most = 0;
  for (Place place = accepted_.begin(); place != accepted_.end(); ++place) {
    if (!place->is_unknown() || place->stream->since() > due || !place->stream->all_is_read()) {
      continue;
    }
    const std::ptrdiff_t count = std::count_if(accepted_.begin(), accepted_.end(), [&](const Accepted& one) {
      return one.is_unknown() && one.from == place->from;
    });
    if (count > most) {
      most = count;
      chosen = place;
    }
  }
  if (chosen == accepted_.end()) {
    return false;
  }
  turn_away(chosen);
  return true;
}

void OobListener::turn_away(Place place) {
  OobStream& stream = *place->stream;
  const bool is_counted_anyway = stream.was_spoken_to();
  stream.close();
  if (!is_counted_anyway) {
    unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
  }
}

OobListener::Place OobListener::place_of(const OobStream& stream) noexcept {
  return std::find_if(accepted_.begin(), accepted_.end(), [&](const Accepted& one) { return one.stream == &stream; });
}

/// Accepts nobody for a while, or until a socket is closed.
void OobListener::pause(std::chrono::milliseconds length) {
  for (const Socket& socket : sockets_) {
    socket.watch->stop();
  }
  pause_over_.start(static_cast<unsigned>(length.count()));
}

void OobListener::resume() {
  pause_over_.stop();
  for (const Socket& socket : sockets_) {
    socket.watch->start();
  }
}

void OobListener::on_known(OobStream& stream) {
  place_of(stream)->timer.reset();
  --unknown_;
}

/// There is room for another. A peer that has said nothing has changed its mind: its turn came, and with it our own request.
void OobListener::on_closed(OobStream& stream) {
  const Place place = place_of(stream);
  if (place->is_unknown()) {
    --unknown_;
    if (stream.was_spoken_to()) {
      unknown_peers_refused.fetch_add(1, std::memory_order_relaxed);
    }
  }
  accepted_.erase(place);
  resume();
}

}  // namespace fabric::cpc
