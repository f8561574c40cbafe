// SPDX-License-Identifier: BSD-3-Clause
//
// A main thread's half that does what endpoints do, and no more: one endpoint for every peer, and those that are being
// closed.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpc/core/cts_table.h"
#include "test/model/main_half.h"

namespace fabric::model {

/// A mistake that the main thread makes, to see that it is found.
enum class Mistake : std::uint8_t {
  kNone,
  kSendsBeforeCts,  ///< does not wait for the peer's CTS
  kForgetsDestroy,  ///< says no Destroy after Flushing
  kForgetsPosting,  ///< says ReceivesPosted, or sends CTS, without having posted
  kDestroysEarly,   ///< says Destroy before Close
  kSendsAgain,      ///< posts what waited for the connection twice
  kIgnoresPeerLeft,
};

class EndpointDriver final : public MainHalf {
 public:
  EndpointDriver(MainEnvironment environment, Mistake mistake)
      : environment_(std::move(environment)), mistake_(mistake) {}

  void on_upcall(cpc::Upcall upcall) override {
    std::visit([this](const auto& one) { hear(one); }, upcall);
  }
  void on_packet(std::uint32_t queue_pair, const Packet& packet) override;
  void on_send_failed(std::uint32_t queue_pair) override;
  void send(std::uint8_t peer) override;
  [[nodiscard]] bool can_close(std::uint8_t peer) const override { return endpoints_.contains(peer); }
  void close(std::uint8_t peer) override;
  [[nodiscard]] std::string unsettled() const override;
  [[nodiscard]] bool has_failed(std::uint8_t peer) const override {
    const auto found = endpoints_.find(peer);
    return found != endpoints_.end() && found->second->state == State::kFailed;
  }
  void add_to(Digest& digest) const override;

 private:
  enum class State : std::uint8_t { kIdle, kConnecting, kConnected, kFailed, kClosing };
  /// How far the connection of one direction is, as far as both threads have said.
  struct Way {
    enum class Told : std::uint8_t { kNothing, kOpen, kEnding, kFlushed };
    Told told = Told::kNothing;
    cpc::LinkNumber link = 0;
  };
  using Told = Way::Told;
  struct Endpoint {
    std::uint8_t peer = 0;
    State state = State::kIdle;
    bool spoke = false;
    bool has_asked = false;  ///< Connect is said, and not answered
    cpc::CtsState cts = cpc::CtsState::kUnlinked;
    bool may_speak_first = true;
    unsigned cts_received = 0;
    std::array<Way, 3> ways{};
    std::vector<std::uint32_t> queue_pairs;
    std::uint32_t sender = 0;          ///< X queues: the queue pair to the peer's node
    std::uint32_t target = 0;          ///< X queues: messages of the peer come in through it
    std::deque<std::uint8_t> waiting;  ///< serials
  };

  void hear(const cpc::PostReceives& upcall);
  void hear(const cpc::Connected& upcall);
  void hear(const cpc::Linked& upcall);
  void hear(const cpc::PeerLeft& upcall);
  void hear(const cpc::Failed& upcall);
  void hear(const cpc::Flushing& upcall);
  void hear(const cpc::AsyncEvent& /*upcall*/) {}
  void hear(const cpc::Shortage& /*upcall*/) {}

  [[nodiscard]] bool is_xrc(std::uint8_t peer) const { return environment_.target(peer).cpc.one_way; }
  [[nodiscard]] cpc::Direction outgoing(std::uint8_t peer) const {
    return is_xrc(peer) ? cpc::Direction::kOutgoing : cpc::Direction::kBoth;
  }
  [[nodiscard]] bool exchanges(std::uint8_t peer) const { return environment_.target(peer).cpc.exchanges_cts; }
  [[nodiscard]] static std::uint8_t peer_of(const cpc::ConnectionKey& key) {
    return static_cast<std::uint8_t>(key.peer.rank);
  }
  [[nodiscard]] static cpc::ConnectionKey key(std::uint8_t peer, cpc::Direction direction = cpc::Direction::kBoth) {
    return {{7, peer}, 0, 0, direction};
  }
  static Way& way(Endpoint& endpoint, cpc::Direction direction) {
    return endpoint.ways[static_cast<std::size_t>(direction)];
  }
  [[nodiscard]] Endpoint* find(std::uint8_t peer);
  [[nodiscard]] Endpoint& endpoint(std::uint8_t peer);
  [[nodiscard]] Endpoint* owner_of(std::uint32_t queue_pair);
  [[nodiscard]] Endpoint* closing(const cpc::ConnectionKey& key, cpc::LinkNumber link);
  [[nodiscard]] Endpoint* open(const cpc::ConnectionKey& key, cpc::LinkNumber link);
  void retire(Endpoint& endpoint);
  void destroy(const cpc::ConnectionKey& key, cpc::LinkNumber link);
  void want_connection(Endpoint& endpoint);
  void connected(Endpoint& endpoint);
  void post(Endpoint& endpoint, std::uint8_t serial);
  void apply(Endpoint& endpoint, cpc::CtsEvent event);
  void post_receives(Endpoint& endpoint);
  void cts_arrived(Endpoint& endpoint);
  void give_up(Endpoint& endpoint, cpc::Direction direction, const std::string& reason);
  void give_up(Endpoint& endpoint, const std::string& reason);
  void connection_failed(Endpoint& endpoint);
  void peer_left(Endpoint& endpoint);
  void destroy_drained();

  const MainEnvironment environment_;
  const Mistake mistake_;
  std::map<std::uint8_t, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_;
  std::map<cpc::ConnectionKey, cpc::LinkNumber> newest_;  ///< numbers used and heard of
  std::multiset<std::uint32_t> early_cts_;
};

// ---- Endpoints

inline EndpointDriver::Endpoint* EndpointDriver::find(std::uint8_t peer) {
  const auto found = endpoints_.find(peer);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

inline EndpointDriver::Endpoint& EndpointDriver::endpoint(std::uint8_t peer) {
  std::unique_ptr<Endpoint>& found = endpoints_[peer];
  if (!found) {
    found = std::make_unique<Endpoint>();
    found->peer = peer;
  }
  return *found;
}

inline EndpointDriver::Endpoint* EndpointDriver::owner_of(std::uint32_t queue_pair) {
  const auto has = [queue_pair](const Endpoint& one) {
    return one.target == queue_pair || std::count(one.queue_pairs.begin(), one.queue_pairs.end(), queue_pair) != 0;
  };
  for (const auto& [peer, one] : endpoints_) {
    if (has(*one)) {
      return one.get();
    }
  }
  return nullptr;  // of one that is being closed: what comes for it is thrown away
}

/// The endpoint that is being closed and still has this connection.
inline EndpointDriver::Endpoint* EndpointDriver::closing(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
  for (const auto& one : closing_) {
    const Way& has = way(*one, key.direction);
    if (one->peer == peer_of(key) && has.told != Told::kNothing && has.link == link) {
      return one.get();
    }
  }
  return nullptr;
}

/// The endpoint that is to have the connection; null if it is refused, or crosses our Close.
inline EndpointDriver::Endpoint* EndpointDriver::open(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
  if (closing(key, link) != nullptr) {
    return nullptr;
  }
  newest_[key] = std::max(newest_[key], link);
  Endpoint& to = endpoint(peer_of(key));
  Way& has = way(to, key.direction);
  if (to.state != State::kFailed) {
    has = {Told::kOpen, link};
    to.spoke = to.spoke && key.direction == cpc::Direction::kOutgoing;
    return &to;
  }
  if (has.told == Told::kNothing || has.link != link) {
    environment_.submit(cpc::Close{key, link, "the connection has failed", true});
  }
  return nullptr;
}

inline void EndpointDriver::want_connection(Endpoint& endpoint) {
  const cpc::ConnectionKey wanted = key(endpoint.peer, outgoing(endpoint.peer));
  const cpc::LinkNumber link = ++newest_[wanted];
  endpoint.state = State::kConnecting;
  endpoint.has_asked = true;
  way(endpoint, wanted.direction) = {Told::kOpen, link};
  environment_.submit(cpc::Connect{wanted, link, environment_.target(endpoint.peer)});
}

/// Its queue pairs are of no use any more; the endpoint goes on without them.
inline void EndpointDriver::retire(Endpoint& endpoint) {
  const bool is_missed = std::any_of(endpoint.queue_pairs.begin(), endpoint.queue_pairs.end(),
                                     [this](std::uint32_t number) { return environment_.fabric.has_sent(number); });
  endpoint.queue_pairs.clear();
  endpoint.cts = cpc::CtsState::kUnlinked;
  endpoint.cts_received = 0;
  way(endpoint, cpc::Direction::kBoth) = {};
  endpoint.state = endpoint.has_asked ? State::kConnecting : State::kIdle;
  if (is_missed) {
    connection_failed(endpoint);
  }
}

inline void EndpointDriver::destroy(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
  if (mistake_ != Mistake::kForgetsDestroy) {
    environment_.submit(cpc::Destroy{key, link});
  }
}

inline void EndpointDriver::post(Endpoint& endpoint, std::uint8_t serial) {
  const std::uint32_t queue_pair = endpoint.sender != 0 ? endpoint.sender : endpoint.queue_pairs.front();
  environment_.fabric.send(queue_pair, {Packet::Kind::kData, serial, endpoint.peer});
}

inline void EndpointDriver::connected(Endpoint& endpoint) {
  endpoint.state = State::kConnected;
  endpoint.has_asked = false;
  endpoint.spoke = endpoint.spoke || !is_xrc(endpoint.peer);
  for (const std::uint8_t serial : std::exchange(endpoint.waiting, {})) {
    post(endpoint, serial);
    if (mistake_ == Mistake::kSendsAgain) {
      post(endpoint, serial);
    }
  }
}

inline void EndpointDriver::give_up(Endpoint& endpoint, cpc::Direction direction, const std::string& reason) {
  Way& has = way(endpoint, direction);
  if (has.told == Told::kOpen) {
    has.told = Told::kEnding;
    if (mistake_ == Mistake::kDestroysEarly) {
      environment_.submit(cpc::Destroy{key(endpoint.peer, direction), has.link});
    }
    environment_.submit(cpc::Close{key(endpoint.peer, direction), has.link, reason});
  }
}

inline void EndpointDriver::give_up(Endpoint& endpoint, const std::string& reason) {
  for (const auto direction : {cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming}) {
    give_up(endpoint, direction, reason);
  }
}

/// The upper layer is told: all that is under way to the peer comes to nothing.
inline void EndpointDriver::connection_failed(Endpoint& endpoint) {
  if (endpoint.state == State::kFailed) {
    return;
  }
  endpoint.state = State::kFailed;
  endpoint.has_asked = false;
  endpoint.waiting.clear();
  environment_.ledger.tell(environment_.self, endpoint.peer);
}

// ---- The application

inline void EndpointDriver::send(std::uint8_t peer) {
  Endpoint& to = endpoint(peer);
  if (to.state == State::kFailed) {
    return;
  }
  const std::uint8_t serial = environment_.ledger.accepted(environment_.self, peer);
  if (to.state == State::kConnected) {
    post(to, serial);
    return;
  }
  to.waiting.push_back(serial);
  if (to.state == State::kIdle) {
    want_connection(to);
  }
}

inline void EndpointDriver::close(std::uint8_t peer) {
  environment_.ledger.drop_all(environment_.self, peer);
  Endpoint& closed = *closing_.emplace_back(std::move(endpoints_.at(peer)));
  endpoints_.erase(peer);
  closed.state = State::kClosing;
  closed.waiting.clear();
  give_up(closed, "the process has disconnected");
  destroy_drained();
}

/// Whatever has been answered is destroyed.
inline void EndpointDriver::destroy_drained() {
  for (std::size_t i = 0; i < closing_.size();) {
    const auto answered = [](const Way& way) { return way.told == Told::kNothing || way.told == Told::kFlushed; };
    if (!std::all_of(closing_[i]->ways.begin(), closing_[i]->ways.end(), answered)) {
      ++i;
      continue;
    }
    const std::unique_ptr<Endpoint> one = std::move(closing_[i]);
    closing_.erase(closing_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto direction : {cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming}) {
      if (way(*one, direction).told != Told::kNothing) {
        destroy(key(one->peer, direction), way(*one, direction).link);
      }
    }
  }
}

// ---- Upcalls

inline void EndpointDriver::hear(const cpc::PostReceives& upcall) {
  Endpoint* const to = open(upcall.key, upcall.link);
  if (to == nullptr) {
    return;
  }
  if (upcall.key.direction == cpc::Direction::kBoth) {
    to->state = State::kConnecting;
    for (const ibv_qp* queue_pair : upcall.queue_pairs) {
      to->queue_pairs.push_back(queue_pair->qp_num);
    }
    post_receives(*to);
  } else {
    environment_.fabric.fill_shared_queues(environment_.self);
    to->target = upcall.target_qpn != 0 ? upcall.target_qpn : to->target;
  }
  environment_.submit(cpc::ReceivesPosted{upcall.key, upcall.link});
}

inline void EndpointDriver::hear(const cpc::Connected& upcall) {
  Endpoint* to = find(peer_of(upcall.key));
  if (to == nullptr || to->state != State::kConnecting || upcall.key.direction == cpc::Direction::kIncoming ||
      way(*to, upcall.key.direction).link != upcall.link) {
    return;
  }
  if (upcall.key.direction == cpc::Direction::kOutgoing) {
    to->sender = upcall.xrc.queue_pair->qp_num;
  }
  connected(*to);
}

inline void EndpointDriver::hear(const cpc::Linked& upcall) {
  Endpoint* const to = open(upcall.key, upcall.link);
  if (to == nullptr) {
    return;
  }
  to->state = State::kConnecting;
  to->may_speak_first = upcall.may_speak_first;
  for (const ibv_qp* queue_pair : upcall.queue_pairs) {
    to->queue_pairs.push_back(queue_pair->qp_num);
  }
  post_receives(*to);
  apply(*to, cpc::CtsEvent::kLinked);
  for (const std::uint32_t number : std::vector<std::uint32_t>(to->queue_pairs)) {
    if (early_cts_.erase(number) > 0) {
      cts_arrived(*to);
    }
  }
}

inline void EndpointDriver::hear(const cpc::PeerLeft& upcall) {
  Endpoint* const to = find(peer_of(upcall.key));
  if (to != nullptr && way(*to, upcall.key.direction).link == upcall.link && mistake_ != Mistake::kIgnoresPeerLeft) {
    peer_left(*to);
  }
}

inline void EndpointDriver::hear(const cpc::Failed& upcall) {
  if (upcall.reason.find("protocol error") != std::string::npos) {
    environment_.fault.add("protocol error: " + upcall.reason);
  }
  const bool is_new = upcall.link > newest_[upcall.key];
  newest_[upcall.key] = std::max(newest_[upcall.key], upcall.link);
  Endpoint* const to = find(peer_of(upcall.key));
  if (to == nullptr || (!is_new && way(*to, upcall.key.direction).link != upcall.link)) {
    return;
  }
  if (!is_new) {
    way(*to, upcall.key.direction).told = Told::kEnding;
  }
  const bool is_peers_wish = (to->state == State::kIdle || to->state == State::kConnecting) && to->waiting.empty();
  if (!upcall.was_wanted && (to->has_asked || is_peers_wish)) {
    if (!is_new && upcall.key.direction == cpc::Direction::kBoth) {
      retire(*to);
    }
    return;
  }
  connection_failed(*to);
  give_up(*to, upcall.reason);
}

inline void EndpointDriver::hear(const cpc::Flushing& upcall) {
  if (Endpoint* one = closing(upcall.key, upcall.link); one != nullptr) {
    way(*one, upcall.key.direction).told = Told::kFlushed;
    destroy_drained();
    return;
  }
  Endpoint* const to = find(peer_of(upcall.key));
  Way* const has = to == nullptr ? nullptr : &way(*to, upcall.key.direction);
  if (has == nullptr || has->told == Told::kNothing || has->link != upcall.link) {
    destroy(upcall.key, upcall.link);  // it has been retired, or was refused
    return;
  }
  if (to->state == State::kFailed) {
    has->told = Told::kFlushed;  // it goes with the endpoint
    return;
  }
  destroy(upcall.key, upcall.link);
  if (upcall.key.direction == cpc::Direction::kBoth) {
    retire(*to);  // a newer one takes its place
  } else {
    *has = {};
  }
}

// ---- Completions, and the exchange of CTS

inline void EndpointDriver::on_packet(std::uint32_t queue_pair, const Packet& packet) {
  Endpoint* const from = owner_of(queue_pair);
  if (packet.kind == Packet::Kind::kClearToSend) {
    if (from != nullptr) {
      cts_arrived(*from);
    } else {
      early_cts_.insert(queue_pair);
    }
    return;
  }
  if (from == nullptr) {
    return;  // its endpoint is being closed
  }
  environment_.ledger.delivered(from->peer, environment_.self, packet.serial);
  if (!from->spoke && !exchanges(from->peer)) {
    from->spoke = true;
    const auto direction = is_xrc(from->peer) ? cpc::Direction::kIncoming : cpc::Direction::kBoth;
    environment_.submit(cpc::PeerSpoke{key(from->peer, direction), way(*from, direction).link});
  }
}

inline void EndpointDriver::on_send_failed(std::uint32_t queue_pair) {
  if (Endpoint* const to = owner_of(queue_pair); to != nullptr) {
    connection_failed(*to);
  }
  for (const auto& [peer, sharer] : endpoints_) {
    if (sharer->sender == queue_pair && sharer->state != State::kFailed) {
      connection_failed(*sharer);
      give_up(*sharer, cpc::Direction::kOutgoing, "the queue pair that it shares has failed");
    }
  }
}

inline void EndpointDriver::post_receives(Endpoint& endpoint) {
  for (const std::uint32_t number : endpoint.queue_pairs) {
    if (mistake_ != Mistake::kForgetsPosting) {
      environment_.fabric.post_receives(number);
    }
  }
}

inline void EndpointDriver::cts_arrived(Endpoint& endpoint) {
  if (++endpoint.cts_received == endpoint.queue_pairs.size()) {
    apply(endpoint, cpc::CtsEvent::kCtsArrived);
  }
}

inline void EndpointDriver::peer_left(Endpoint& endpoint) {
  if (endpoint.state != State::kFailed) {
    apply(endpoint, cpc::CtsEvent::kPeerLeft);
  }
}

inline void EndpointDriver::apply(Endpoint& endpoint, cpc::CtsEvent event) {
  const cpc::CtsStep step = cpc::cts_step(endpoint.cts, event, endpoint.may_speak_first);
  endpoint.cts = step.next;
  for (const cpc::CtsAction action : step.actions) {
    switch (action) {
      case cpc::CtsAction::kNone:
        break;
      case cpc::CtsAction::kSendCts:
        for (const std::uint32_t number : endpoint.queue_pairs) {
          environment_.fabric.send(number, {Packet::Kind::kClearToSend, 0, endpoint.peer});
        }
        if (mistake_ == Mistake::kSendsBeforeCts) {
          connected(endpoint);
        }
        break;
      case cpc::CtsAction::kStartSending:
        connected(endpoint);
        break;
      case cpc::CtsAction::kFail: {
        const bool is_peers_wish = endpoint.state != State::kConnected && endpoint.waiting.empty();
        if (!is_peers_wish) {
          connection_failed(endpoint);
        }
        give_up(endpoint, std::string(step.why));
        if (is_peers_wish) {
          retire(endpoint);
        }
        return;
      }
      case cpc::CtsAction::kNotePeerLeft:
        give_up(endpoint, "the peer has closed the connection");
        retire(endpoint);
        return;
    }
  }
}

// ---- For the checker

inline std::string EndpointDriver::unsettled() const {
  for (const auto& [peer, one] : endpoints_) {
    if (one->state == State::kConnecting) {
      return "the endpoint of a peer connects for ever";
    }
  }
  return closing_.empty() ? "" : "an endpoint is being closed for ever";
}

inline void EndpointDriver::add_to(Digest& digest) const {
  const auto add = [&digest](const Endpoint& one) {
    digest.add(one.peer | static_cast<unsigned>(one.state) << 8U | static_cast<unsigned>(one.cts) << 16U |
               (one.spoke ? 1U << 24U : 0U) | (one.has_asked ? 1U << 30U : 0U) |
               (one.may_speak_first ? 1U << 25U : 0U) | one.cts_received << 26U);
    for (const Way& way : one.ways) {
      digest.add(static_cast<unsigned>(way.told) | way.link << 8U);
    }
    for (const std::uint32_t number : one.queue_pairs) {
      digest.add_name(number);
    }
    digest.add_name(one.sender);
    digest.add_name(one.target);
    for (const std::uint8_t serial : one.waiting) {
      digest.add(serial);
    }
    digest.add(one.queue_pairs.size() << 8U | one.waiting.size());
  };
  for (const auto& [peer, one] : endpoints_) {
    add(*one);
  }
  for (const auto& one : closing_) {
    add(*one);
  }
  for (const auto& [key, link] : newest_) {
    digest.add(key.peer.rank << 2U | static_cast<unsigned>(key.direction) | std::uint64_t{link} << 16U);
  }
  for (const std::uint32_t number : early_cts_) {
    digest.add_name(number);
  }
  digest.add(endpoints_.size() | closing_.size() << 8U | early_cts_.size() << 16U);
}

}  // namespace fabric::model
