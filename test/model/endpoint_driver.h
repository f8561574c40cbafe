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
  kForgetsClose,    ///< says no Close after Failed
  kForgetsPosting,  ///< says ReceivesPosted, or sends CTS, without having posted
  kDestroysEarly,   ///< says Destroy with Close
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
  enum class State : std::uint8_t { kIdle, kConnecting, kConnected, kPeerLeft, kFailed, kClosing };
  enum class Way : std::uint8_t { kNone, kOpen, kClosing, kFlushed };
  struct Endpoint {
    std::uint8_t peer = 0;
    State state = State::kIdle;
    bool spoke = false;
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
  [[nodiscard]] Endpoint* closing(const cpc::ConnectionKey& key);
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
  void connect_if_wanted(std::uint8_t peer);
  void refuse(const cpc::ConnectionKey& key, const std::string& reason);

  const MainEnvironment environment_;
  const Mistake mistake_;
  std::map<std::uint8_t, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_;
  std::set<cpc::ConnectionKey> refused_;
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
    found->spoke = exchanges(peer);
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

/// Refuses a connection that no endpoint has.
inline void EndpointDriver::refuse(const cpc::ConnectionKey& key, const std::string& reason) {
  refused_.insert(key);
  environment_.submit(cpc::Close{key, reason});
}

/// The endpoint that is being closed and still has this connection.
inline EndpointDriver::Endpoint* EndpointDriver::closing(const cpc::ConnectionKey& key) {
  for (const auto& one : closing_) {
    if (one->peer == peer_of(key) && way(*one, key.direction) != Way::kNone) {
      return one.get();
    }
  }
  return nullptr;
}

inline void EndpointDriver::want_connection(Endpoint& endpoint) {
  const cpc::ConnectionKey wanted = key(endpoint.peer, outgoing(endpoint.peer));
  if (closing(wanted) != nullptr || refused_.contains(wanted)) {
    return;  // the last connection is still being taken down
  }
  endpoint.state = State::kConnecting;
  way(endpoint, wanted.direction) = Way::kOpen;
  environment_.submit(cpc::Connect{wanted, environment_.target(endpoint.peer)});
}

inline void EndpointDriver::post(Endpoint& endpoint, std::uint8_t serial) {
  const std::uint32_t queue_pair = endpoint.sender != 0 ? endpoint.sender : endpoint.queue_pairs.front();
  environment_.fabric.send(queue_pair, {Packet::Kind::kData, serial, endpoint.peer});
}

inline void EndpointDriver::connected(Endpoint& endpoint) {
  endpoint.state = State::kConnected;
  endpoint.spoke = endpoint.spoke || !is_xrc(endpoint.peer);
  for (const std::uint8_t serial : std::exchange(endpoint.waiting, {})) {
    post(endpoint, serial);
    if (mistake_ == Mistake::kSendsAgain) {
      post(endpoint, serial);
    }
  }
}

inline void EndpointDriver::give_up(Endpoint& endpoint, cpc::Direction direction, const std::string& reason) {
  if (way(endpoint, direction) == Way::kOpen) {
    way(endpoint, direction) = Way::kClosing;
    if (mistake_ != Mistake::kForgetsClose || endpoint.state != State::kFailed) {
      environment_.submit(cpc::Close{key(endpoint.peer, direction), reason});
    }
    if (mistake_ == Mistake::kDestroysEarly) {
      environment_.submit(cpc::Destroy{key(endpoint.peer, direction)});
    }
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
  endpoint.waiting.clear();
  environment_.ledger.tell(environment_.self, endpoint.peer);
}

// ---- The application

inline void EndpointDriver::send(std::uint8_t peer) {
  Endpoint& to = endpoint(peer);
  if (to.state == State::kPeerLeft) {
    connection_failed(to);
    give_up(to, "the peer has closed the connection, and there is a message for it");
  }
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

/// Whatever has been answered is destroyed; who has waited for that connects.
inline void EndpointDriver::destroy_drained() {
  for (std::size_t i = 0; i < closing_.size();) {
    const auto answered = [](Way way) { return way == Way::kNone || way == Way::kFlushed; };
    if (!std::all_of(closing_[i]->ways.begin(), closing_[i]->ways.end(), answered)) {
      ++i;
      continue;
    }
    const std::unique_ptr<Endpoint> one = std::move(closing_[i]);
    closing_.erase(closing_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto direction : {cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming}) {
      if (way(*one, direction) != Way::kNone) {
        environment_.submit(cpc::Destroy{key(one->peer, direction)});
      }
    }
    connect_if_wanted(one->peer);
  }
}

inline void EndpointDriver::connect_if_wanted(std::uint8_t peer) {
  if (Endpoint* one = find(peer); one != nullptr && one->state == State::kIdle && !one->waiting.empty()) {
    want_connection(*one);
  }
}

// ---- Upcalls

inline void EndpointDriver::hear(const cpc::PostReceives& upcall) {
  if (closing(upcall.key) != nullptr || refused_.contains(upcall.key)) {
    return;  // crossed our Close
  }
  Endpoint& to = endpoint(peer_of(upcall.key));
  if (to.state == State::kFailed && way(to, upcall.key.direction) == Way::kNone) {
    refuse(upcall.key, "the connection has failed");
    return;
  }
  if (way(to, upcall.key.direction) == Way::kNone) {
    way(to, upcall.key.direction) = Way::kOpen;
  }
  if (to.state == State::kFailed) {
    return;  // our Close has crossed this
  }
  if (upcall.key.direction == cpc::Direction::kBoth) {
    to.state = State::kConnecting;
    for (const ibv_qp* queue_pair : upcall.queue_pairs) {
      to.queue_pairs.push_back(queue_pair->qp_num);
    }
    post_receives(to);
  } else {
    environment_.fabric.fill_shared_queues(environment_.self);
    to.target = upcall.target_qpn != 0 ? upcall.target_qpn : to.target;
  }
  environment_.submit(cpc::ReceivesPosted{upcall.key});
}

inline void EndpointDriver::hear(const cpc::Connected& upcall) {
  Endpoint* to = find(peer_of(upcall.key));
  if (to == nullptr || to->state != State::kConnecting || upcall.key.direction == cpc::Direction::kIncoming) {
    return;
  }
  if (upcall.key.direction == cpc::Direction::kOutgoing) {
    to->sender = upcall.xrc.queue_pair->qp_num;
  }
  connected(*to);
}

inline void EndpointDriver::hear(const cpc::Linked& upcall) {
  if (closing(upcall.key) != nullptr || refused_.contains(upcall.key)) {
    return;
  }
  Endpoint& to = endpoint(peer_of(upcall.key));
  if (to.state == State::kFailed) {
    refuse(upcall.key, "the connection has failed");
    return;
  }
  way(to, upcall.key.direction) = Way::kOpen;
  to.state = State::kConnecting;
  to.may_speak_first = upcall.may_speak_first;
  for (const ibv_qp* queue_pair : upcall.queue_pairs) {
    to.queue_pairs.push_back(queue_pair->qp_num);
  }
  post_receives(to);
  apply(to, cpc::CtsEvent::kLinked);
  for (const std::uint32_t number : std::vector<std::uint32_t>(to.queue_pairs)) {
    if (early_cts_.erase(number) > 0) {
      cts_arrived(to);
    }
  }
}

inline void EndpointDriver::hear(const cpc::PeerLeft& upcall) {
  if (Endpoint* to = find(peer_of(upcall.key)); to != nullptr && mistake_ != Mistake::kIgnoresPeerLeft) {
    peer_left(*to);
  }
}

inline void EndpointDriver::hear(const cpc::Failed& upcall) {
  // A peer that has closed may come back with other queue pairs; that is no mistake of either side.
  if (upcall.reason.find("protocol error") != std::string::npos &&
      upcall.reason.find("it has forgotten the connection") == std::string::npos) {
    environment_.fault.add("protocol error: " + upcall.reason);
  }
  Endpoint* to = find(peer_of(upcall.key));
  if (to == nullptr) {
    if (closing(upcall.key) == nullptr && !refused_.contains(upcall.key)) {
      refuse(upcall.key, upcall.reason);
    }
    return;
  }
  if (way(*to, upcall.key.direction) == Way::kNone) {
    way(*to, upcall.key.direction) = Way::kOpen;
  }
  if ((to->state == State::kIdle || to->state == State::kConnecting) && to->waiting.empty()) {
    to->state = is_xrc(to->peer) ? to->state : State::kPeerLeft;  // the peer's wish alone
    give_up(*to, upcall.key.direction, upcall.reason);
    return;
  }
  connection_failed(*to);
  give_up(*to, upcall.reason);
}

inline void EndpointDriver::hear(const cpc::Flushing& upcall) {
  if (refused_.erase(upcall.key) > 0) {
    environment_.submit(cpc::Destroy{upcall.key});
    connect_if_wanted(peer_of(upcall.key));
    return;
  }
  if (Endpoint* one = closing(upcall.key); one != nullptr) {
    way(*one, upcall.key.direction) = Way::kFlushed;
    destroy_drained();
    return;
  }
  Endpoint* to = find(peer_of(upcall.key));
  if (to != nullptr && way(*to, upcall.key.direction) != Way::kNone) {
    way(*to, upcall.key.direction) = Way::kFlushed;  // it has failed, and is there until it is closed
  } else {
    environment_.submit(cpc::Destroy{upcall.key});
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
  if (!from->spoke) {
    from->spoke = true;
    environment_.submit(
        cpc::PeerSpoke{key(from->peer, is_xrc(from->peer) ? cpc::Direction::kIncoming : cpc::Direction::kBoth)});
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
      case cpc::CtsAction::kFail:
        if (endpoint.state != State::kConnected && endpoint.waiting.empty()) {
          endpoint.state = State::kPeerLeft;
        } else {
          connection_failed(endpoint);
        }
        give_up(endpoint, std::string(step.why));
        break;
      case cpc::CtsAction::kNotePeerLeft:
        if (endpoint.state == State::kConnected) {
          endpoint.state = State::kPeerLeft;
        }
        break;
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
               (one.spoke ? 1U << 24U : 0U) | (one.may_speak_first ? 1U << 25U : 0U) | one.cts_received << 26U);
    for (const Way way : one.ways) {
      digest.add(static_cast<unsigned>(way));
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
  for (const cpc::ConnectionKey& key : refused_) {
    digest.add(key.peer.rank << 2U | static_cast<unsigned>(key.direction));
  }
  digest.add(refused_.size());
  for (const std::uint32_t number : early_cts_) {
    digest.add_name(number);
  }
  digest.add(endpoints_.size() | closing_.size() << 8U | early_cts_.size() << 16U);
}

}  // namespace fabric::model
