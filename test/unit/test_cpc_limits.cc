// SPDX-License-Identifier: BSD-3-Clause
//
// Many connections at once: how many sockets a process has then, and that everybody's turn comes, whoever computes.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>

#include "cpc/core/message.h"
#include "cpc/oob/oob_streams.h"
#include "cpc/oob/tcp_connections.h"
#include "test/unit/cpc_relay.h"

namespace fabric {
namespace {

using test::check_connected;
using test::Fate;
using test::Node;
using test::Relay;

/// Sockets that this process has open.
int count_sockets() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    std::array<char, 64> what{};
    if (readlinkat(dirfd(folder), entry->d_name, what.data(), what.size() - 1) > 0 &&
        std::string_view(what.data()).starts_with("socket:")) {
      ++count;
    }
  }
  closedir(folder);
  return count;
}

Node::Options limited(std::uint32_t rank, std::size_t limit, std::uint16_t ports = 1) {
  auto options = Node::options(rank);
  options.settings.connect_limit = limit;
  options.ports = ports;
  return options;
}

/// Peers of one node, which have a TCP connection each.
class Crowd {
 public:
  /// Ranks from 10 on.
  Crowd(std::uint32_t count, std::size_t limit, unsigned idle_ms = 1000) {
    for (std::uint32_t i = 0; i < count; ++i) {
      auto options = limited(10 + i, limit);
      options.settings.stream_idle_ms = idle_ms;
      nodes_.emplace_back(options);
    }
  }
  [[nodiscard]] std::deque<Node>& nodes() { return nodes_; }
  /// All of them, and these.
  [[nodiscard]] std::vector<Node*> with(std::initializer_list<Node*> others) {
    std::vector<Node*> all(others);
    for (Node& node : nodes_) {
      all.push_back(&node);
    }
    return all;
  }
  /// How many of its connections with that node have come so far, as the crowd sees it.
  [[nodiscard]] int count(Fate fate, const Node& center) {
    return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(),
                                          [&](Node& node) { return node.seen(node.key_to(center)).fate == fate; }));
  }
  /// The same as the node sees it.
  [[nodiscard]] int count_at(Node& center, Fate fate) {
    return static_cast<int>(std::count_if(
        nodes_.begin(), nodes_.end(), [&](const Node& node) { return center.seen(center.key_to(node)).fate == fate; }));
  }
  [[nodiscard]] bool all_connected(Node& center) {
    const auto all = static_cast<int>(nodes_.size());
    return count(Fate::kConnected, center) == all && count_at(center, Fate::kConnected) == all;
  }
  void post(bool may) {
    for (Node& node : nodes_) {
      node.posts = may;
    }
  }

 private:
  std::deque<Node> nodes_;
};

/// As many come to be open, beyond `before`, and no more.
void check_most_sockets(const std::vector<Node*>& nodes, int before, int expected) {
  int most = 0;
  const auto look = [&] { return most = std::max(most, count_sockets() - before); };
  ck_assert_msg(test::run_all_until(nodes, [&] { return look() >= expected; }), "%d sockets, not %d", most, expected);
  (void)test::run_all_until(
      nodes, [&] { return look() > expected; }, 0.3);
  ck_assert_int_eq(most, expected);
}

/// Connections that one side opens and the others answer; sockets of both are in this process.
START_TEST(no_more_sockets_than_allowed) {
  for (const std::size_t limit : {1, 3, 8}) {
    Node a(limited(1, limit));
    Crowd crowd(24, 1000);
    crowd.post(false);  // so that whatever is opened stays open
    const int before = count_sockets();
    for (const Node& node : crowd.nodes()) {
      a.connect(node);
    }
    check_most_sockets(crowd.with({&a}), before, 2 * static_cast<int>(limit));
    crowd.post(true);
    ck_assert(test::run_all_until(crowd.with({&a}), [&] { return crowd.all_connected(a); }));
    ck_assert(test::run_all_until(
        crowd.with({&a}), [&] { return count_sockets() == before; }, 5));  // closed after use
  }
}
END_TEST

/// All ports of two processes go over one connection, and that is closed some time after the last use.
START_TEST(one_socket_for_all_ports) {
  constexpr std::uint16_t kPorts = 60;
  Node a(limited(1, 1, kPorts));
  Node b(limited(2, 1, kPorts));
  b.posts = false;
  const int before = count_sockets();
  const std::uint64_t opened = cpc::tcp_connections_opened;
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    a.connect(b, port);
  }
  check_most_sockets({&a, &b}, before, 2);
  b.posts = true;
  for (std::uint16_t port = 0; port < kPorts; ++port) {
    check_connected(a, b, port);
  }
  ck_assert_uint_eq(cpc::tcp_connections_opened, opened + 1);
  ck_assert(test::run_until(
      {&a, &b}, [&] { return count_sockets() == before; }, 5));
}
END_TEST

/// However many there were, few are kept for what may come.
START_TEST(few_are_kept) {
  constexpr int kPeers = 2 * cpc::OobStreams::kMostIdle;
  constexpr unsigned kForLong = 60000;
  Node a(1, &cpc::ConnectionSettings::stream_idle_ms, kForLong);
  Crowd crowd(kPeers, 1000, kForLong);
  const int before = count_sockets();
  for (const Node& node : crowd.nodes()) {
    a.connect(node);
  }
  ck_assert(test::run_all_until(crowd.with({&a}), [&] { return crowd.all_connected(a); }));
  ck_assert(test::run_all_until(
      crowd.with({&a}), [&] { return count_sockets() - before <= kPeers; }, 5));
  ck_assert_int_gt(count_sockets(), before);
}
END_TEST

/// The same where it is the listener that has the limit. While its main thread computes, all who come are heard, though
/// they are told to come back: none is left in the backlog until it is full.
START_TEST(no_more_accepted_than_allowed) {
  constexpr int kPeers = 30;
  Node b(limited(2, 5));
  Crowd crowd(kPeers, 1000);
  b.posts = false;
  const int before = count_sockets();
  for (Node& node : crowd.nodes()) {
    node.connect(b);
  }
  int most = 0;
  ck_assert(test::run_all_until(crowd.with({&b}), [&] {
    most = std::max(most, count_sockets() - before);
    return crowd.count_at(b, Fate::kAsked) == kPeers;
  }));
  ck_assert_int_le(most, kPeers + 5);
  (void)test::run_all_until(
      crowd.with({&b}), [] { return false; }, 0.5);
  ck_assert_int_eq(crowd.count(Fate::kPosted, b), kPeers);  // they wait
  b.posts = true;
  ck_assert(test::run_all_until(crowd.with({&b}), [&] { return crowd.all_connected(b); }));
  for (Node& node : crowd.nodes()) {
    ck_assert_int_eq(node.seen(node.key_to(b)).failed + b.seen(b.key_to(node)).failed, 0);
  }
}
END_TEST

/// Some peers compute, for long; another's turn comes all the same, and then the first ones'.
START_TEST(a_peer_that_computes_holds_nobody_up) {
  Node a(limited(1, 2));
  Crowd busy(4, 100);
  Node idle(limited(3, 100));
  busy.post(false);
  for (const Node& node : busy.nodes()) {
    a.connect(node);
  }
  const auto asked = [&](int count) {
    return test::run_all_until(busy.with({&a, &idle}), [&] { return busy.count(Fate::kAsked, a) == count; });
  };
  ck_assert(asked(2));  // both places are taken
  a.connect(idle);
  check_connected(a, idle);
  ck_assert(asked(4));  // turns come and go
  busy.post(true);
  ck_assert(test::run_all_until(busy.with({&a}), [&] { return busy.all_connected(a); }));
}
END_TEST

/// All want all, with one turn each.
START_TEST(a_crowd_with_one_turn_each) {
  constexpr std::uint32_t kNodes = 8;
  std::deque<Node> nodes;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    nodes.emplace_back(limited(rank, 1));
  }
  for (Node& a : nodes) {
    for (Node& b : nodes) {
      if (&a != &b) {
        a.connect(b);
      }
    }
  }
  const bool done =
      test::run_until({&nodes[0], &nodes[1], &nodes[2], &nodes[3], &nodes[4], &nodes[5], &nodes[6], &nodes[7]}, [&] {
        return std::all_of(nodes.begin(), nodes.end(), [&](Node& a) {
          return std::all_of(nodes.begin(), nodes.end(),
                             [&](Node& b) { return &a == &b || a.seen(a.key_to(b)).fate == Fate::kConnected; });
        });
      });
  ck_assert(done);
  for (Node& a : nodes) {
    for (Node& b : nodes) {
      ck_assert(&a == &b || (a.seen(a.key_to(b)).connected == 1 && a.seen(a.key_to(b)).failed == 0));
    }
  }
}
END_TEST

/// A listening socket whose backlog is full: who connects to it gets no answer.
class Hole {
 public:
  Hole(std::uint32_t host, std::uint16_t port) {
    sockaddr_in address = Relay::loopback(port, host);
    socklen_t size = sizeof address;
    ck_assert_int_eq(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    ck_assert_int_eq(listen(listener_.get(), 0), 0);
    do {
      waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(waiting_.back().get(), reinterpret_cast<sockaddr*>(&address), size);
      pollfd asked{waiting_.back().get(), POLLOUT, 0};
      is_full_ = poll(&asked, 1, 200) == 0;
    } while (!is_full_);
  }

 private:
  cpc::FileDescriptor listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<cpc::FileDescriptor> waiting_;
  bool is_full_ = false;
};

/// Addresses that do not answer, for very long: the turns of those who want others do not wait for them, and those of a peer
/// that has more than one are all tried.
START_TEST(silent_addresses_hold_nobody_up) {
  auto options = limited(1, 1, 2);
  options.settings.connect_timeout_ms = 60000;
  Node a(options);
  Node b(limited(2, 10, 2));
  Relay relay(b.target(), [](int, bool, std::size_t) { return Relay::Flow::kPass; });
  relay.open();
  auto offer = *cpc::decode_oob_offer(relay.target().offer);
  const Hole hole(0x7f000002, offer.port_v4);
  cpc::PeerTarget silent = relay.target();
  offer.addresses = {{false, 8, {127, 0, 0, 2}}};
  silent.offer = encode(offer);
  cpc::PeerTarget both = relay.target();
  offer.addresses.push_back({false, 8, {127, 0, 0, 1}});
  both.offer = encode(offer);
  a.connect({{7, 9}, 0, 0}, silent);
  a.connect(a.key_to(b, 1), both);
  a.connect(b);
  check_connected(a, b, 0);
  check_connected(a, b, 1);
}
END_TEST

/// TCP gets through in one direction only, and not in that of the side whose request would have precedence.
START_TEST(a_firewall_with_one_way) {
  Node a(1, &cpc::ConnectionSettings::connect_timeout_ms, 300);
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 60000);
  auto wall = b.target();  // an address that nobody answers
  auto offer = *cpc::decode_oob_offer(wall.offer);
  offer.addresses = {{false, 24, {192, 0, 2, 1}}};
  wall.offer = encode(offer);
  a.connect(a.key_to(b), wall);
  test::run_for({&a, &b}, 100);
  b.connect(a);
  check_connected(a, b, 0, 5);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_limits",
                         {no_more_sockets_than_allowed, one_socket_for_all_ports, few_are_kept,
                          no_more_accepted_than_allowed, a_peer_that_computes_holds_nobody_up,
                          a_crowd_with_one_turn_each, silent_addresses_hold_nobody_up, a_firewall_with_one_way},
                         120);
}
