// SPDX-License-Identifier: BSD-3-Clause
//
// TCP connections that several channels share: one for each pair of processes, whichever side opens them; what its loss means for
// them; and what somebody who hears it all can do with it.
#include <dirent.h>
#include <netinet/tcp.h>

#include <cstdlib>

#include "cpc/core/message.h"
#include "cpc/oob/tcp_connections.h"
#include "test/unit/cpc_relay.h"
#include "test/unit/cpc_stranger.h"

namespace fabric {
namespace {

using test::check_connected;
using test::Fate;
using test::is_turned_away;
using test::key_of;
using test::Node;
using test::port_of;
using test::Relay;
using test::request_to;
using test::run_for;
using test::run_until;
using test::send_bytes;
using test::signed_by;
using Flow = Relay::Flow;

constexpr std::uint16_t kPorts = 3;
constexpr std::size_t kRequestBytes = 111;  ///< with two queues; a REPLY has as many
const cpc::ConnectionKey kStranger{{7, 77}, 0, 0};

Node::Options with_ports(std::uint32_t rank) {
  auto options = Node::options(rank);
  options.ports = kPorts;
  options.settings.stream_idle_ms = 60000;  // however slow the machine is, none is closed between two steps of a test
  return options;
}

void check_all_connected(Node& a, Node& b) {
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    check_connected(a, b, port);
  }
}

START_TEST(links_of_a_pair_share_one) {
  Node a(with_ports(1));
  Node b(with_ports(2));
  const std::uint64_t before = cpc::tcp_connections_opened;
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    a.connect(b, port);
  }
  check_all_connected(a, b);
  ck_assert_uint_eq(cpc::tcp_connections_opened, before + 1);
}
END_TEST

/// One after the other, and opened by either side.
START_TEST(either_side_uses_it) {
  Node a(with_ports(1));
  Node b(with_ports(2));
  const std::uint64_t before = cpc::tcp_connections_opened;
  a.connect(b, 0);
  check_connected(a, b, 0);
  b.connect(a, 1);
  check_connected(b, a, 1);
  a.connect(b, 2);
  check_connected(a, b, 2);
  ck_assert_uint_eq(cpc::tcp_connections_opened, before + 1);
}
END_TEST

/// Both want all links at once: at most each opens a connection.
START_TEST(both_open_at_once) {
  for (int round = 0; round < 30; ++round) {
    Node a(with_ports(1));
    Node b(with_ports(2));
    const std::uint64_t before = cpc::tcp_connections_opened;
    for (std::uint16_t port = 0; port < kPorts; ++port) {
      a.connect(b, port);
      run_for({&a, &b}, static_cast<unsigned>(round % 3));
      b.connect(a, port);
    }
    check_all_connected(a, b);
    ck_assert_uint_le(cpc::tcp_connections_opened, before + 2);
  }
}
END_TEST

/// Somebody who plays the listener of a node, for one connection.
class Listener {
 public:
  /// `room`: for bytes that were not read; 0: as much as the kernel likes.
  explicit Listener(int room = 0) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_ = Relay::loopback(0);
    socklen_t size = sizeof address_;
    ck_assert_int_eq(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    if (room > 0) {
      ck_assert_int_eq(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    }
    ck_assert_int_eq(listen(socket_.get(), 1), 0);
    ck_assert_int_eq(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  [[nodiscard]] cpc::PeerTarget instead_of(const Node& node) const {
    cpc::PeerTarget target = node.target();
    target.offer = encode(cpc::OobOffer{ntohs(address_.sin_port), 0, {{false, 8, {127, 0, 0, 1}}}});
    return target;
  }
  [[nodiscard]] cpc::FileDescriptor take() const {
    return cpc::FileDescriptor(accept(socket_.get(), nullptr, nullptr));
  }

 private:
  cpc::FileDescriptor socket_;
  sockaddr_in address_{};
};

START_TEST(requests_leave_together) {
  Node a(with_ports(1));
  Node b(with_ports(2));
  const Listener listener;
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    a.connect(a.key_to(b, port), listener.instead_of(b));
  }
  run_for({&a}, 50);  // all have posted
  const cpc::FileDescriptor accepted = listener.take();
  const auto hello = cpc::encode_hello({});
  send_bytes(accepted, hello);
  std::array<std::byte, 1000> bytes{};
  ck_assert_int_eq(recv(accepted.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(kPorts * kRequestBytes));
  const cpc::MessageKey key(b.token(), {});
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    const auto one = std::span(bytes).subspan(port * kRequestBytes, kRequestBytes);
    ck_assert(key.has_signed(one, {false, port}));
    const auto message = cpc::decode_message(one);
    ck_assert(message.has_value() && message->header.by_opener && message->header.target_port == port);
  }
}
END_TEST

/// Who does not read is sent what the kernel takes, and the rest when it reads; nobody else waits for that.
START_TEST(a_slow_reader_holds_nobody_up) {
  constexpr std::uint16_t kMany = 4000;
  auto options = with_ports(1);
  options.ports = kMany;
  Node a(options);
  Node b(with_ports(2));
  Node c(with_ports(3));
  const Listener listener(1024);
  const cpc::PeerTarget slow = listener.instead_of(b);
  for (std::uint16_t port = 0; port < kMany; ++port) {
    a.connect(a.key_to(b, port), slow);
  }
  ck_assert(run_until({&a}, [&] { return a.seen(a.key_to(b, kMany - 1)).fate == Fate::kPosted; }));
  run_for({&a}, 50);
  const cpc::FileDescriptor accepted = listener.take();
  send_bytes(accepted, cpc::encode_hello({}));
  a.connect(c, 0);
  check_connected(a, c, 0);
  c.connect(a, 1);
  check_connected(c, a, 1);
  const cpc::MessageKey key(b.token(), {});
  for (std::uint64_t number = 0; number < kMany; ++number) {
    std::vector<std::byte> request(kRequestBytes);
    ck_assert_int_eq(recv(accepted.get(), request.data(), request.size(), MSG_WAITALL),
                     static_cast<ssize_t>(request.size()));
    ck_assert_msg(key.has_signed(request, {false, number}), "number %u", static_cast<unsigned>(number));
  }
}
END_TEST

/// It breaks when all have sent their requests: each is made by another attempt, over one connection again.
START_TEST(its_loss_is_that_of_all) {
  Node a(with_ports(1));
  Node b(with_ports(2));
  std::atomic<bool> is_cut = false;
  Relay relay(b.target(), [&](int connection, bool to_listener, std::size_t at) {
    return connection == 0 && !to_listener && at >= cpc::kHelloBytes && is_cut ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  b.posts = false;
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    a.connect(a.key_to(b, port), relay.target());
  }
  ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a, kPorts - 1)).fate == Fate::kAsked; }));
  is_cut = true;
  b.posts = true;
  check_all_connected(a, b);
  ck_assert_int_le(relay.connections(), 1 + kPorts);
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    ck_assert_int_eq(a.seen(a.key_to(b, port)).failed + b.seen(b.key_to(a, port)).failed, 0);
  }
}
END_TEST

/// Wherever it breaks, while both sides open channels on it.
START_TEST(breaks_anywhere) {
  const bool to_listener = _i % 2 == 0;
  const std::size_t at = static_cast<std::size_t>(_i) / 2 * 29;
  {
    Node a(with_ports(1));
    Node b(with_ports(2));
    Relay relay(b.target(), [=](int connection, bool is_to_listener, std::size_t byte) {
      return connection == 0 && is_to_listener == to_listener && byte == at ? Flow::kCut : Flow::kPass;
    });
    relay.open();
    a.connect(a.key_to(b, 0), relay.target());
    a.connect(a.key_to(b, 1), relay.target());
    ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a, 0)).fate != Fate::kUnknown; }));
    b.connect(a, 2);
    check_all_connected(a, b);
    for (std::uint16_t port = 0; port < kPorts; ++port) {
      ck_assert_int_eq(a.seen(a.key_to(b, port)).failed + b.seen(b.key_to(a, port)).failed, 0);
    }
  }
  ck_assert_int_eq(test::fake_counts.made.load(), test::fake_counts.destroyed.load());
}
END_TEST

/// One that was idle is closed just when a request goes out. That is no attempt: this node has no time for a second one.
START_TEST(closed_for_want_of_use) {
  auto options = with_ports(1);
  options.settings.retry_time_ms = 0;
  Node a(options);
  Node b(with_ports(2));
  std::atomic<bool> is_cut = false;
  Relay relay(b.target(), [&](int connection, bool to_listener, std::size_t) {
    return connection == 0 && to_listener && is_cut ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  a.connect(a.key_to(b, 0), relay.target());
  check_connected(a, b, 0);
  run_for({&a, &b}, 100);
  is_cut = true;
  a.connect(a.key_to(b, 1), relay.target());
  check_connected(a, b, 1);
  ck_assert_int_eq(relay.connections(), 2);
}
END_TEST

/// A member of the job, that speaks by itself. Nothing is good twice, neither to the node nor back to it.
START_TEST(what_was_heard_is_good_once) {
  for (const bool sends_back : {false, true}) {
    Node b(2);
    const cpc::FileDescriptor peer = Relay::connect_to(port_of(b));
    const cpc::MessageKey key = key_of(b, peer);
    const std::vector<std::byte> request = signed_by(key, request_to(b));
    send_bytes(peer, request);
    ck_assert(run_until({&b}, [&] { return b.seen(kStranger).fate == Fate::kPosted; }));
    std::vector<std::byte> reply(kRequestBytes);
    ck_assert_int_eq(recv(peer.get(), reply.data(), reply.size(), MSG_WAITALL), static_cast<ssize_t>(reply.size()));
    ck_assert(key.has_signed(reply, {true, 0}));
    cpc::Message pause = request_to(b);
    pause.header.type = cpc::MessageType::kPause;
    send_bytes(peer, signed_by(key, pause, 1));  // after which the same request may come again, signed anew
    send_bytes(peer, sends_back ? reply : request);
    ck_assert(is_turned_away(peer));
  }
}
END_TEST

/// A message of a channel that is closed, or never was, is passed over; what comes next counts.
START_TEST(messages_of_no_channel) {
  Node b(2);
  const cpc::FileDescriptor peer = Relay::connect_to(port_of(b));
  const cpc::MessageKey key = key_of(b, peer);
  send_bytes(peer, signed_by(key, request_to(b)));
  ck_assert(run_until({&b}, [&] { return b.seen(kStranger).fate == Fate::kPosted; }));
  cpc::Message confirm = request_to(b);
  confirm.header.type = cpc::MessageType::kConfirm;
  std::uint64_t number = 0;
  for (const int what : {0, 1, 2}) {
    cpc::Message other = confirm;
    other.header.incarnation += what == 0 ? 1 : 0;
    other.header.sender_port = what == 1 ? 1 : 0;
    other.header.by_opener = what != 2;
    send_bytes(peer, signed_by(key, other, ++number));
  }
  run_for({&b}, 50);
  ck_assert(b.seen(kStranger).fate == Fate::kPosted);
  send_bytes(peer, signed_by(key, confirm, ++number));
  ck_assert(run_until({&b}, [&] { return b.seen(kStranger).fate == Fate::kConnected; }));
}
END_TEST

/// Who is known on a connection speaks for itself only.
START_TEST(nobody_speaks_for_another) {
  Node b(with_ports(2));
  const cpc::FileDescriptor peer = Relay::connect_to(port_of(b));
  const cpc::MessageKey key = key_of(b, peer);
  send_bytes(peer, signed_by(key, request_to(b)));
  ck_assert(run_until({&b}, [&] { return b.seen(kStranger).fate == Fate::kPosted; }));
  cpc::Message other = request_to(b, 1);
  other.header.sender.rank = 78;
  send_bytes(peer, signed_by(key, other, 1));
  std::array<std::byte, kRequestBytes + 1> bytes{};
  ck_assert_int_eq(recv(peer.get(), bytes.data(), bytes.size(), MSG_WAITALL), static_cast<ssize_t>(kRequestBytes));
  ck_assert(b.seen({{7, 78}, 1, 1}).fate == Fate::kUnknown);
}
END_TEST

/// A host that dies is noticed by the sockets that were accepted, too.
START_TEST(accepted_sockets_notice_a_dead_host) {
  Node b(2);
  const cpc::FileDescriptor peer = Relay::connect_to(port_of(b));
  (void)key_of(b, peer);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ck_assert_int_eq(getsockname(peer.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  int found = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in other{};
    size = sizeof other;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) != 0 || other.sin_port != own.sin_port) {
      continue;
    }
    ++found;
    for (const auto& [level, option] :
         {std::pair(SOL_SOCKET, SO_KEEPALIVE), std::pair<int, int>(IPPROTO_TCP, TCP_NODELAY),
          std::pair<int, int>(IPPROTO_TCP, TCP_USER_TIMEOUT)}) {
      int value = 0;
      socklen_t length = sizeof value;
      ck_assert_int_eq(getsockopt(fd, level, option, &value, &length), 0);
      ck_assert_int_ne(value, 0);
    }
  }
  closedir(folder);
  ck_assert_int_eq(found, 1);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("oob_streams",
                         {links_of_a_pair_share_one,
                          either_side_uses_it,
                          both_open_at_once,
                          requests_leave_together,
                          a_slow_reader_holds_nobody_up,
                          its_loss_is_that_of_all,
                          {breaks_anywhere, 2 * 16},
                          closed_for_want_of_use,
                          what_was_heard_is_good_once,
                          messages_of_no_channel,
                          nobody_speaks_for_another,
                          accepted_sockets_notice_a_dead_host},
                         120);
}
