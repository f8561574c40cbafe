// SPDX-License-Identifier: BSD-3-Clause
//
// A process of a job, as far as connection set-up is concerned: a real ConnectionManager with its progress thread and
// sockets, queue pairs that only record what is done to them, and a main thread that answers upcalls like the
// component.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpc/manager/connection_manager.h"
#include "test/unit/check_main.h"
#include "test/unit/cpc_parameters.h"
#include "test/unit/fake_queue_pairs.h"

namespace fabric::test {

enum class Fate { kUnknown, kAsked, kPosted, kConnected, kFailed, kFlushing, kDestroyed };

/// What the main thread knows of the newest connection of a key.
struct Seen {
  cpc::LinkNumber link = 0;
  bool wanted = false;  ///< Connect is said, and not answered
  Fate fate = Fate::kUnknown;
  bool posted = false;
  bool closing = false;
  int connected = 0;  ///< upcalls
  int failed = 0;
  std::string reason;
  std::string history;
  std::vector<cpc::QueuePairEnd> remote_ends;
  std::uint32_t target_qpn = 0;  ///< X queues, incoming
  cpc::XrcPath xrc;              ///< X queues, outgoing
};

class Node {
 public:
  struct Options {
    cpc::ConnectionSettings settings;
    CpcOptions parameters;
    const char* receive_queues = "P,4096,64,32:S,65536,128,64,16";
    std::uint16_t ports = 1;
    bool make_fails = false;
    bool connect_fails = false;
    std::int64_t queue_pairs = 0;         ///< that it may have; 0: any number
    std::int64_t device_has = INT64_MAX;  ///< if it may have a number of them: how many there are
    std::uint64_t xrc_domain = 0;         ///< with X queues: the node that it is on
  };

  static Options options(std::uint32_t rank) {
    Options made;
    made.settings.self = {7, rank};
    made.settings.token.fill(static_cast<std::byte>(0x40 + rank));
    made.settings.retry_time_ms = 1500;
    made.settings.connect_timeout_ms = 2000;
    made.settings.handshake_timeout_ms = 3000;
    return made;
  }
  static Options options(std::uint32_t rank, unsigned cpc::ConnectionSettings::*setting, unsigned value) {
    Options made = options(rank);
    made.settings.*setting = value;
    return made;
  }

  /// Why a process of that kind offers a port no way to connect, by CPC.
  static std::vector<CpcOffer> refusals_of(const Options& options) {
    auto manager = cpc::ConnectionManager::start(
        options.settings, options.parameters.make(),
        [](const cpc::PortContext&, const QueueSubset&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
          return failure("not needed");
        });
    ck_assert(manager.has_value());
    return (*manager)->refusals();
  }

  explicit Node(std::uint32_t rank) : Node(options(rank)) {}
  /// With another value of that setting.
  Node(std::uint32_t rank, unsigned cpc::ConnectionSettings::*setting, unsigned value)
      : Node(options(rank, setting, value)) {}
  explicit Node(const Options& options)
      : options_(options),
        queues_(*ReceiveQueues::parse(options.receive_queues)),
        budget_(options.queue_pairs, static_cast<std::int64_t>(queues_.count())),
        device_has_(options.device_has) {
    const std::size_t count = queues_.count();
    auto manager = cpc::ConnectionManager::start(
        options.settings, options.parameters.make(),
        [this, options, count](const cpc::PortContext& port,
                               const QueueSubset&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
          if (port.budget != nullptr && port.budget->taken() >= device_has_) {
            ++fake_counts.refused;
            auto refused = failure("the fake device has no queue pair left");
            refused.value().is_shortage = true;
            return refused;
          }
          if (options.make_fails || takes_one(fake_counts.make_failures)) {
            return failure("the fake device has no queue pair left");
          }
          return std::make_unique<FakeQueuePairs>(count, options.connect_fails, port.budget);
        },
        fake_xrc_maker(
            {options.settings.self.rank, count, options.xrc_domain, options.make_fails, options.connect_fails}));
    ck_assert_msg(manager.has_value(), "%s", manager ? "" : manager.error().text.c_str());
    manager_ = std::move(*manager);
    for (std::uint16_t i = 0; i < options.ports; ++i) {
      cpc::PortContext& port = ports_.emplace_back();
      port.index = i;
      port.queues = &queues_;
      port.subsets = {QueueSubset::all(queues_)};
      port.address.mtu = 3;
      port.xrc_domain = options.xrc_domain;
      if (options.queue_pairs > 0) {
        port.budget = &budget_;
      }
      manager_->add_port(port);
    }
  }
  ~Node() { stop(); }

  void stop() { manager_.reset(); }
  /// Others who share the device have taken queue pairs, or given them back.
  void device_has(std::int64_t queue_pairs) { device_has_ = queue_pairs; }
  [[nodiscard]] bool running() const { return manager_ != nullptr; }
  [[nodiscard]] cpc::ConnectionManager& manager() { return *manager_; }
  [[nodiscard]] ProcessName name() const { return options_.settings.self; }
  [[nodiscard]] JobToken token() const { return options_.settings.token; }

  /// How peers on this host reach this node.
  [[nodiscard]] cpc::PeerTarget target() const {
    std::vector<const cpc::PortContext*> all;
    for (const cpc::PortContext& port : ports_) {
      all.push_back(&port);
    }
    const auto offers = manager_->offers(all);
    ck_assert_uint_eq(offers.size(), 1);
    return {*cpc::find_cpc(offers[0].kind), offers[0].blob, options_.settings.token, true};
  }

  /// With X queues: of the messages that go to the peer.
  [[nodiscard]] cpc::ConnectionKey key_to(const Node& peer, std::uint16_t port = 0) const {
    return {peer.name(), port, port, has_xrc() ? cpc::Direction::kOutgoing : cpc::Direction::kBoth};
  }
  /// The same, or, with X queues, of the messages that come from it.
  [[nodiscard]] cpc::ConnectionKey key_from(const Node& peer, std::uint16_t port = 0) const {
    return {peer.name(), port, port, has_xrc() ? cpc::Direction::kIncoming : cpc::Direction::kBoth};
  }
  [[nodiscard]] bool has_xrc() const { return queues_[0].kind == QueueKind::kXrc; }
  void connect(const Node& peer, std::uint16_t port = 0) { connect(key_to(peer, port), peer.target()); }
  /// Like an endpoint: who is connected asks for nothing.
  void connect(const cpc::ConnectionKey& key, const cpc::PeerTarget& target) {
    const Seen& last = seen(key);
    if (last.fate == Fate::kConnected && !last.closing) {
      return;
    }
    const cpc::LinkNumber link = newest_[key] + 1;
    manager_->submit(cpc::Connect{key, link, target});
    if (last.closing || last.fate == Fate::kUnknown || last.fate == Fate::kDestroyed) {
      begin(key, link).wanted = true;
    }
  }
  /// Wants another one while there is one, which is to be closed.
  void connect_after_this(const Node& peer) {
    const cpc::ConnectionKey key = key_to(peer);
    manager_->submit(cpc::Connect{key, newest_[key] + 1, peer.target()});
  }
  /// `is_final`: the peer need not ask again.
  void close(const cpc::ConnectionKey& key, const std::string& reason, bool is_final = false) {
    Seen& one = seen(key);
    if (one.link == 0) {
      begin(key, newest_[key] + 1);
    }
    if (!one.closing) {
      one.closing = true;
      one.wanted = false;
      manager_->submit(cpc::Close{key, one.link, reason, is_final});
    }
  }

  Seen& seen(const cpc::ConnectionKey& key) { return seen_[key]; }
  [[nodiscard]] bool is_gone(const cpc::ConnectionKey& key) { return seen(key).fate == Fate::kDestroyed; }

  /// What it was short of.
  std::vector<std::string> shortages;
  std::size_t room_wanted = 0;     ///< connections that wait for queue pairs
  unsigned times_room_wanted = 0;  ///< that this was said

  /// When the main thread answers PostReceives; until then it "computes".
  bool posts = true;
  /// Refuses connections that it is asked for, with this reason.
  std::string refusal;
  /// Called on Connected, before it is noted.
  std::function<void(const cpc::ConnectionKey&)> on_connected;

  /// Answers what there is, like the component's progress function.
  void pump() {
    if (!manager_) {
      return;
    }
    if (posts) {
      for (const auto& [key, link] : std::exchange(waiting_, {})) {
        if (seen(key).link == link && seen(key).fate == Fate::kAsked) {  // else it is over
          post(key);
        }
      }
    }
    if (manager_->has_upcalls()) {
      for (cpc::Upcall& upcall : manager_->take_upcalls()) {
        std::visit([this](auto& one) { on(one); }, upcall);
      }
    }
  }

 private:
  /// A newer connection than all before it.
  Seen& begin(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
    ck_assert_uint_gt(link, newest_[key]);
    newest_[key] = link;
    seen_[key] = Seen();
    seen_[key].link = link;
    return seen_[key];
  }
  /// True if an upcall is about the newest connection, which it may be the first to name. Others cross our Close, or come
  /// from one that has been taken down.
  bool is_newest(const cpc::ConnectionKey& key, cpc::LinkNumber link) {
    if (link > newest_[key]) {
      const bool wanted = seen(key).wanted;
      const Fate last = seen(key).fate;
      ck_assert_msg(seen(key).closing || last == Fate::kUnknown || last == Fate::kDestroyed,
                    "a newer connection, and the last one is not over");
      begin(key, link).wanted = wanted;
    }
    return seen(key).link == link;
  }
  void post(const cpc::ConnectionKey& key) {
    if (!seen(key).closing) {
      seen(key).posted = true;
      seen(key).fate = Fate::kPosted;
      manager_->submit(cpc::ReceivesPosted{key, seen(key).link});
    }
  }
  void on(const cpc::PostReceives& upcall) {
    if (!is_newest(upcall.key, upcall.link) || seen(upcall.key).closing) {
      return;  // crossed our Close
    }
    ck_assert_msg(seen(upcall.key).fate == Fate::kUnknown, "asked twice");
    seen(upcall.key).fate = Fate::kAsked;
    ck_assert_uint_eq(upcall.queue_pairs.size(), has_xrc() ? 0 : queues_.count());
    ck_assert((upcall.target_qpn != 0) == (upcall.key.direction == cpc::Direction::kIncoming));
    seen(upcall.key).target_qpn = upcall.target_qpn;
    if (!refusal.empty()) {
      close(upcall.key, refusal, true);
    } else if (posts) {
      post(upcall.key);
    } else {
      waiting_.emplace_back(upcall.key, upcall.link);
    }
  }
  void on(const cpc::Connected& upcall) {
    if (!is_newest(upcall.key, upcall.link) || seen(upcall.key).closing) {
      return;  // crossed our Close
    }
    ck_assert_msg(seen(upcall.key).posted, "connected before our receives were posted");
    if (on_connected) {
      on_connected(upcall.key);
    }
    seen(upcall.key).wanted = false;
    seen(upcall.key).fate = Fate::kConnected;
    seen(upcall.key).connected++;
    seen(upcall.key).remote_ends = upcall.remote_ends;
    seen(upcall.key).xrc = upcall.xrc;
  }
  void on(const cpc::Failed& upcall) {
    if (!is_newest(upcall.key, upcall.link)) {
      return;
    }
    Seen& one = seen(upcall.key);
    if (one.wanted && !upcall.was_wanted) {
      return;  // our Connect has crossed this, and is for a newer one
    }
    one.fate = Fate::kFailed;
    one.failed++;
    one.reason = upcall.reason;
    one.history = upcall.history;
    one.closing = true;
    one.wanted = false;
  }
  void on(const cpc::Flushing& upcall) {
    manager_->submit(cpc::Destroy{upcall.key, upcall.link});
    if (is_newest(upcall.key, upcall.link)) {
      // Without a Close, and while it is wanted: a newer one comes by itself.
      seen(upcall.key).fate = seen(upcall.key).wanted ? Fate::kUnknown : Fate::kDestroyed;
    }
  }
  void on(const cpc::Linked&) { ck_abort_msg("oob does not exchange CTS"); }
  void on(const cpc::QueuePairsGone& upcall) {
    ck_assert_msg(upcall.sender != 0, "without CTS nothing comes before its connection is known");
  }
  void on(const cpc::PeerLeft&) { ck_abort_msg("oob does not exchange CTS"); }
  void on(const cpc::Shortage& upcall) { shortages.push_back(upcall.reason); }
  void on(const cpc::Remark&) {}
  void on(const cpc::RoomWanted& upcall) {
    room_wanted = upcall.connections;
    ++times_room_wanted;
  }
  void on(const cpc::KeepAliveDue&) {}
  void on(const cpc::AsyncEvent&) { ck_abort_msg("a fake device has no events"); }

  Options options_;
  ReceiveQueues queues_;
  cpc::QueuePairBudget budget_;
  std::atomic<std::int64_t> device_has_;
  std::deque<cpc::PortContext> ports_;
  std::unique_ptr<cpc::ConnectionManager> manager_;
  std::map<cpc::ConnectionKey, Seen> seen_;
  std::map<cpc::ConnectionKey, cpc::LinkNumber> newest_;
  std::vector<std::pair<cpc::ConnectionKey, cpc::LinkNumber>> waiting_;
};

/// Pumps the nodes until `done`, which must come within `seconds`.
template <class Nodes, class Done>
bool run_all_until(const Nodes& nodes, Done done, double seconds = 30) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    for (Node* node : nodes) {
      node->pump();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

template <class Done>
bool run_until(std::initializer_list<Node*> nodes, Done done, double seconds = 30) {
  return run_all_until(nodes, std::move(done), seconds);
}

inline void run_for(std::initializer_list<Node*> nodes, unsigned milliseconds) {
  (void)run_until(
      nodes, [] { return false; }, milliseconds / 1000.0);
}

/// As many times as that, all answer what there is.
inline void run_turns(std::initializer_list<Node*> nodes, unsigned turns) {
  unsigned turn = 0;
  (void)run_until(nodes, [&] { return turn++ == turns; });
}

/// Both must be told "connected", once, after both have posted. With X queues: what goes from `a` to `b`.
inline void check_connected(Node& a, Node& b, std::uint16_t port = 0, double seconds = 30) {
  const cpc::ConnectionKey at_a = a.key_to(b, port);
  const cpc::ConnectionKey at_b = b.key_from(a, port);
  const bool done = run_until(
      {&a, &b}, [&] { return a.seen(at_a).fate == Fate::kConnected && b.seen(at_b).fate == Fate::kConnected; },
      seconds);
  ck_assert_msg(done, "not connected: %s %s; %s %s", a.seen(at_a).reason.c_str(), a.seen(at_a).history.c_str(),
                b.seen(at_b).reason.c_str(), b.seen(at_b).history.c_str());
  ck_assert_int_eq(a.seen(at_a).connected, 1);
  ck_assert_int_eq(b.seen(at_b).connected, 1);
}

/// A connection of `node` comes to its end, while all answer what there is.
inline void check_gone(std::initializer_list<Node*> all, Node& node, const cpc::ConnectionKey& key) {
  ck_assert(run_until(all, [&] { return node.is_gone(key); }));
}
/// At both ends. With X queues: what goes from `a` to `b`.
inline void check_gone(Node& a, Node& b, std::uint16_t port = 0) {
  check_gone({&a, &b}, a, a.key_to(b, port));
  check_gone({&a, &b}, b, b.key_from(a, port));
}

/// Closes the connection of both and waits until it is gone.
inline void close_both(Node& a, Node& b, std::uint16_t port = 0) {
  a.close(a.key_to(b, port), "done");
  b.close(b.key_from(a, port), "done");
  check_gone(a, b, port);
}

}  // namespace fabric::test
