// SPDX-License-Identifier: BSD-3-Clause
//
// A bad network between two nodes: a TCP relay on loopback that cuts connections at a chosen byte, swallows bytes, or
// is not there yet.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <thread>

#include "cpc/loop/file_descriptor.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/xoob_offer.h"
#include "test/unit/cpc_node.h"

namespace fabric::test {

class Relay {
 public:
  enum class Flow { kPass, kCut, kSwallow };
  /// What to do with byte number `at` (from 0) of connection number `connection`, to the listener or back.
  using Rule = std::function<Flow(int connection, bool to_listener, std::size_t at)>;

  /// Stands before the node that `target` leads to. Refuses connections until open().
  Relay(const cpc::PeerTarget& target, Rule rule) : target_(target), rule_(std::move(rule)) {
    cpc::XoobOffer published;
    if (target.cpc.one_way) {
      published = *cpc::decode_xoob_offer(target.offer);
    } else {
      published.listener = target.offer;
    }
    const auto offer = cpc::decode_oob_offer(published.listener);
    ck_assert(offer.has_value());
    node_port_ = offer->port_v4;
    listener_ = cpc::FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address = loopback(0);
    ck_assert_int_eq(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    ck_assert_int_eq(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    published.listener = encode(cpc::OobOffer{ntohs(address.sin_port), 0, {{false, 8, {127, 0, 0, 1}}}});
    target_.offer = target.cpc.one_way ? encode(published) : published.listener;
  }
  ~Relay() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Told of every byte that passes; set before open(), and called by the relay's thread.
  std::function<void(bool to_listener, std::byte byte)> on_byte = [](bool, std::byte) {};

  void open() {
    ck_assert_int_eq(listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { run(); });
  }

  [[nodiscard]] const cpc::PeerTarget& target() const { return target_; }
  [[nodiscard]] int connections() const { return connections_; }

  static sockaddr_in loopback(std::uint16_t port, std::uint32_t host = INADDR_LOOPBACK) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(host);
    return address;
  }
  /// `from`: an address of the loopback interface.
  static cpc::FileDescriptor connect_to(std::uint16_t port, std::uint32_t from = INADDR_LOOPBACK) {
    cpc::FileDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in source = loopback(0, from);
    ck_assert_int_eq(bind(made.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source), 0);
    const sockaddr_in address = loopback(port);
    if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return {};
    }
    return made;
  }

 private:
  static void reset(const cpc::FileDescriptor& socket) {
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    (void)::connect(socket.get(), &nobody, sizeof nobody);
  }

  struct Pair {
    cpc::FileDescriptor opener;
    cpc::FileDescriptor node;
    int number = 0;
    std::size_t to_listener = 0;
    std::size_t back = 0;
  };

  void run() {
    while (!stop_) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      poll(&waiting, 1, 1);
      cpc::FileDescriptor accepted(accept(listener_.get(), nullptr, nullptr));
      if (accepted) {
        pairs_.push_back({std::move(accepted), connect_to(node_port_), connections_++, 0, 0});
      }
      pairs_.remove_if([this](Pair& pair) {
        return !carry(pair, pair.opener, pair.node, true) || !carry(pair, pair.node, pair.opener, false);
      });
    }
  }

  /// Carries what there is; false when the pair is over. A cut is a reset on both sides, like a broken network's.
  bool carry(Pair& pair, const cpc::FileDescriptor& from, const cpc::FileDescriptor& to, bool to_listener) {
    std::byte byte{};
    for (;;) {
      const ssize_t size = recv(from.get(), &byte, 1, MSG_DONTWAIT);
      if (size < 0) {
        return errno == EAGAIN;
      }
      if (size == 0) {
        return false;
      }
      std::size_t& at = to_listener ? pair.to_listener : pair.back;
      on_byte(to_listener, byte);
      const Flow flow = rule_(pair.number, to_listener, at++);
      if (flow == Flow::kCut) {
        reset(pair.opener);
        reset(pair.node);
        return false;
      }
      if (flow == Flow::kPass && ::send(to.get(), &byte, 1, MSG_NOSIGNAL) != 1) {
        return false;
      }
    }
  }

  cpc::PeerTarget target_;
  Rule rule_;
  std::uint16_t node_port_ = 0;
  cpc::FileDescriptor listener_;
  std::list<Pair> pairs_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> connections_ = 0;
};

}  // namespace fabric::test
