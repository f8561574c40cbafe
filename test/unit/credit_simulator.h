// SPDX-License-Identifier: BSD-3-Clause
//
// Two peers with a P queue between them, for tests of CreditWindow. Both directions are lossless and in order, with
// delays; every choice (who does what next, delays, lack of buffers, failing posts) comes from one seeded generator.
// Keeps its own books, and reports the first thing that goes wrong.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>

#include "common/accounting/credit_window.h"

namespace fabric::test {

/// `Window` is CreditWindow or, to show that the checks work, something broken with the same functions.
template <class Window>
class CreditSimulator {
 public:
  CreditSimulator(const QueueSpec& spec, unsigned seed) : spec_(spec), random_(seed), peers_{Peer(spec), Peer(spec)} {}

  /// Has the peers send so many messages to each other. Returns what went wrong first, or nothing.
  std::string run(unsigned from_first, unsigned from_second) {
    peers_[0].to_send = from_first;
    peers_[1].to_send = from_second;
    fill();
    const unsigned steps = 4 * (from_first + from_second);
    for (unsigned i = 0; i < steps && problem_.empty(); ++i) {
      act(chance(2) ? 0 : 1, random_() % kActions, true);
      check_sums();
    }
    drain();
    check_delivered();
    return problem_;
  }

  /// How often a peer had messages, but no credit for them.
  [[nodiscard]] unsigned stalls() const { return stalls_; }
  /// How often a queue grew because its peer said so.
  [[nodiscard]] unsigned growths() const { return growths_; }

 private:
  static constexpr unsigned kActions = 4;

  struct Message {
    CreditGrant grant;
    bool is_explicit = false;
    bool is_short = false;  // the sender had to wait for a credit
  };

  struct Peer {
    explicit Peer(const QueueSpec& spec) : window(spec), credits(spec.rd_init), explicit_left(spec.rd_rsv) {}

    Window window;
    std::deque<Message> inbox;  // under way to this peer
    std::uint32_t posted = 0;   // receives in its queue
    std::uint32_t credits;      // the sum of what was granted to it, less what it sent
    std::uint32_t explicit_left;
    std::uint32_t granted_inbox = 0;  // sum of the grants in inbox, of both kinds
    unsigned to_send = 0;
    unsigned delivered = 0;  // messages that it received
    unsigned sent = 0;
    bool is_short = false;
  };

  bool chance(unsigned of) { return random_() % of == 0; }
  void problem(const std::string& what) { problem_ = problem_.empty() ? what : problem_; }

  /// Both fill their queues, in pieces, before anything is sent.
  void fill() {
    for (unsigned me : {0U, 1U}) {
      while (peers_[me].window.receives_to_post() > 0) {
        post(me, true);
      }
      if (peers_[me].posted != peers_[me].window.depth()) {
        problem("the first filling is not full");
      }
    }
  }

  /// Everybody does what they can, with no lack of anything, until nothing changes any more.
  void drain() {
    unsigned idle = 0;
    while (idle < 2 * kActions && problem_.empty()) {
      // Any order; but each of the actions comes in turn, so that nothing is overlooked.
      const unsigned first = static_cast<unsigned>(random_() % (2 * kActions));
      idle = 0;
      for (unsigned i = 0; i < 2 * kActions; ++i) {
        const unsigned action = (first + i) % (2 * kActions);
        idle += act(action / kActions, action % kActions, false) ? 0 : 1;
        check_sums();
      }
    }
  }

  /// Returns whether anything changed.
  bool act(unsigned me, std::uint64_t action, bool faults) {
    switch (action) {
      case 0:
        return deliver(me);
      case 1:
        return send(me, faults);
      case 2:
        return send_explicit(me, faults);
      default:
        return post(me, faults);
    }
  }

  bool deliver(unsigned me) {
    Peer& peer = peers_[me];
    if (peer.inbox.empty()) {
      return false;
    }
    const Message message = peer.inbox.front();
    peer.inbox.pop_front();
    if (peer.posted == 0) {
      problem("receiver not ready");
      return false;
    }
    --peer.posted;
    peer.granted_inbox -= sum(message.grant);
    peer.credits += message.grant.credits;
    peer.explicit_left += message.grant.explicit_seen;
    peer.delivered += message.is_explicit ? 0 : 1;
    if (!peer.window.receive(message.grant, message.is_explicit)) {
      problem("a true grant was refused");
    }
    // A device may have no room for more now.
    if (message.is_short && peer.window.growth() > 0 && !chance(3)) {
      peer.window.grow(peer.window.growth());
      ++growths_;
    }
    return true;
  }

  bool send(unsigned me, bool faults) {
    Peer& peer = peers_[me];
    if (peer.to_send == 0) {
      return false;
    }
    if (peer.window.sendable() == 0) {
      ++stalls_;
      peer.is_short = true;
      return false;
    }
    peer.window.take_credit();
    const CreditGrant grant = peer.window.take_grant();
    if (faults && chance(8)) {
      peer.window.return_grant(grant);
      peer.window.return_credit();
      return false;
    }
    if (peer.credits == 0) {
      problem("sent without a credit");
      return false;
    }
    --peer.credits;
    --peer.to_send;
    ++peer.sent;
    enqueue(1 - me, {grant, false, std::exchange(peer.is_short, false)});
    return true;
  }

  bool send_explicit(unsigned me, bool faults) {
    Peer& peer = peers_[me];
    if (!peer.window.explicit_due()) {
      return false;
    }
    peer.window.take_explicit();
    const CreditGrant grant = peer.window.take_grant();
    if (faults && chance(8)) {
      peer.window.return_grant(grant);
      peer.window.return_explicit();
      return false;
    }
    if (grant.credits == 0 || peer.explicit_left == 0) {
      problem("an explicit message without use or without a receive");
      return false;
    }
    --peer.explicit_left;
    enqueue(1 - me, {grant, true, std::exchange(peer.is_short, false)});
    return true;
  }

  bool post(unsigned me, bool shortage) {
    Peer& peer = peers_[me];
    const std::uint32_t wanted = peer.window.receives_to_post();
    const std::uint32_t count = shortage ? static_cast<std::uint32_t>(random_() % (wanted + 1)) : wanted;
    peer.posted += count;
    peer.window.posted(count);
    return count > 0;
  }

  void enqueue(unsigned to, const Message& message) {
    peers_[to].inbox.push_back(message);
    peers_[to].granted_inbox += sum(message.grant);
  }

  static std::uint32_t sum(CreditGrant grant) { return std::uint32_t{grant.credits} + grant.explicit_seen; }

  /// For each direction: every receive of the receiver is with the sender as a credit, under way as a message or as a
  /// grant, owed, or not posted.
  void check_sums() {
    for (unsigned me : {0U, 1U}) {
      const Peer& sender = peers_[me];
      const Peer& receiver = peers_[1 - me];
      Window copy = receiver.window;
      const std::uint32_t owed = sum(copy.take_grant());
      const std::size_t total = sender.credits + sender.explicit_left + receiver.inbox.size() + sender.granted_inbox +
                                owed + (receiver.window.depth() - receiver.posted);
      if (total != receiver.window.depth()) {
        problem("sums are not conserved");
      }
      if (receiver.inbox.size() > receiver.posted) {
        problem("receiver not ready");
      }
      if (sender.window.sendable() != sender.credits && !(sender.credits == 1 && sender.window.sendable() == 0)) {
        problem("sendable() is wrong");
      }
      if (sender.credits > spec_.rd_num || sender.explicit_left > spec_.rd_rsv) {
        problem("more credits than receives");
      }
    }
  }

  void check_delivered() {
    for (unsigned me : {0U, 1U}) {
      if (peers_[me].to_send > 0 || peers_[me].sent != peers_[1 - me].delivered) {
        problem("deadlock");
      }
    }
  }

  QueueSpec spec_;
  std::mt19937 random_;
  std::array<Peer, 2> peers_;
  std::string problem_;
  unsigned stalls_ = 0;
  unsigned growths_ = 0;
};

}  // namespace fabric::test
