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
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpc/connection_manager.h"
#include "test/unit/check_main.h"

namespace fabric::test {

/// Counts over all fake queue pairs of the program.
struct FakeCounts {
  std::atomic<int> made = 0;
  std::atomic<int> destroyed = 0;
  std::atomic<int> flushed = 0;
  std::atomic<int> connected = 0;
  std::atomic<std::uint32_t> next_number = 1;
};
inline FakeCounts fake_counts;

class FakeQueuePairs final : public cpc::QueuePairs {
 public:
  FakeQueuePairs(std::size_t count, bool connect_fails) : connect_fails_(connect_fails) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t number = fake_counts.next_number++;
      ends_.push_back({number & 0xffffff, (number * 7919U) & 0xffffff});
    }
    ++fake_counts.made;
  }
  ~FakeQueuePairs() override { ++fake_counts.destroyed; }

  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return std::vector<ibv_qp*>(ends_.size()); }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    ck_assert_msg(!connected_ && ends.size() == ends_.size(), "connected twice, or to a wrong number of ends");
    connected_ = true;
    ++fake_counts.connected;
    return connect_fails_ ? Status(failure("the fake device refuses RTR")) : Status();
  }
  void flush() noexcept override { ++fake_counts.flushed; }

 private:
  std::vector<cpc::QueuePairEnd> ends_;
  bool connect_fails_;
  bool connected_ = false;
};

enum class Fate { kUnknown, kAsked, kPosted, kConnected, kFailed, kFlushing, kDestroyed };

/// What the main thread knows of a connection.
struct Seen {
  Fate fate = Fate::kUnknown;
  bool posted = false;
  bool closing = false;
  int connected = 0;  ///< upcalls
  int failed = 0;
  std::string reason;
  std::string history;
  std::vector<cpc::QueuePairEnd> remote_ends;
};

class Node {
 public:
  struct Options {
    cpc::ManagerSettings settings;
    const char* receive_queues = "P,4096,64,32:S,65536,128,64,16";
    std::uint16_t ports = 1;
    bool make_fails = false;
    bool connect_fails = false;
  };

  static Options options(std::uint32_t rank) {
    Options made;
    made.settings.self = {7, rank};
    made.settings.token.fill(static_cast<std::byte>(0x40 + rank));
    made.settings.connect_retries = 4;
    made.settings.connect_timeout_ms = 2000;
    made.settings.handshake_timeout_ms = 3000;
    return made;
  }

  explicit Node(std::uint32_t rank) : Node(options(rank)) {}
  explicit Node(const Options& options) : options_(options), queues_(*ReceiveQueues::parse(options.receive_queues)) {
    const std::size_t count = queues_.count();
    auto manager = cpc::ConnectionManager::start(
        options.settings, [options, count](const cpc::PortContext&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
          if (options.make_fails) {
            return failure("the fake device has no queue pair left");
          }
          return std::make_unique<FakeQueuePairs>(count, options.connect_fails);
        });
    ck_assert_msg(manager.has_value(), "%s", manager ? "" : manager.error().text.c_str());
    manager_ = std::move(*manager);
    for (std::uint16_t i = 0; i < options.ports; ++i) {
      cpc::PortContext& port = ports_.emplace_back();
      port.index = i;
      port.queues = &queues_;
      port.address.mtu = 3;
      manager_->add_port(port);
    }
  }
  ~Node() { stop(); }

  void stop() { manager_.reset(); }
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
    return {CpcKind::kOob, offers[0].blob, options_.settings.token, true};
  }

  [[nodiscard]] cpc::ConnectionKey key_to(const Node& peer, std::uint16_t port = 0) const {
    return {peer.name(), port, port};
  }
  void connect(const Node& peer, std::uint16_t port = 0) { connect(key_to(peer, port), peer.target()); }
  void connect(const cpc::ConnectionKey& key, const cpc::PeerTarget& target) {
    manager_->submit(cpc::Connect{key, target});
  }
  void close(const cpc::ConnectionKey& key, const std::string& reason) {
    if (!seen(key).closing) {
      seen(key).closing = true;
      manager_->submit(cpc::Close{key, reason});
    }
  }

  Seen& seen(const cpc::ConnectionKey& key) { return seen_[key]; }

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
      for (const cpc::ConnectionKey& key : std::exchange(waiting_, {})) {
        post(key);
      }
    }
    if (manager_->has_upcalls()) {
      for (cpc::Upcall& upcall : manager_->take_upcalls()) {
        std::visit([this](auto& one) { on(one); }, upcall);
      }
    }
  }

 private:
  void post(const cpc::ConnectionKey& key) {
    if (!seen(key).closing) {
      seen(key).posted = true;
      seen(key).fate = Fate::kPosted;
      manager_->submit(cpc::ReceivesPosted{key});
    }
  }
  void on(const cpc::PostReceives& upcall) {
    ck_assert_msg(seen(upcall.key).fate == Fate::kUnknown || seen(upcall.key).fate == Fate::kDestroyed, "asked twice");
    seen(upcall.key) = Seen();
    seen(upcall.key).fate = Fate::kAsked;
    ck_assert_uint_eq(upcall.queue_pairs.size(), queues_.count());
    if (!refusal.empty()) {
      close(upcall.key, refusal);
    } else if (posts) {
      post(upcall.key);
    } else {
      waiting_.push_back(upcall.key);
    }
  }
  void on(const cpc::Connected& upcall) {
    ck_assert_msg(seen(upcall.key).posted, "connected before our receives were posted");
    if (on_connected) {
      on_connected(upcall.key);
    }
    seen(upcall.key).fate = Fate::kConnected;
    seen(upcall.key).connected++;
    seen(upcall.key).remote_ends = upcall.remote_ends;
  }
  void on(const cpc::Failed& upcall) {
    seen(upcall.key).fate = Fate::kFailed;
    seen(upcall.key).failed++;
    seen(upcall.key).reason = upcall.reason;
    seen(upcall.key).history = upcall.history;
    close(upcall.key, "failed");
  }
  void on(const cpc::Flushing& upcall) {
    ck_assert_msg(seen(upcall.key).closing, "flushing without a close");
    seen(upcall.key).fate = Fate::kDestroyed;
    manager_->submit(cpc::Destroy{upcall.key});
  }
  void on(const cpc::Linked&) { ck_abort_msg("oob does not exchange CTS"); }
  void on(const cpc::PeerLeft&) { ck_abort_msg("oob does not exchange CTS"); }
  void on(const cpc::AsyncEvent&) { ck_abort_msg("a fake device has no events"); }

  Options options_;
  ReceiveQueues queues_;
  std::deque<cpc::PortContext> ports_;
  std::unique_ptr<cpc::ConnectionManager> manager_;
  std::map<cpc::ConnectionKey, Seen> seen_;
  std::vector<cpc::ConnectionKey> waiting_;
};

/// Pumps the nodes until `done`, which must come within `seconds`.
template <class Done>
bool run_until(std::initializer_list<Node*> nodes, Done done, double seconds = 30) {
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

inline void run_for(std::initializer_list<Node*> nodes, unsigned milliseconds) {
  (void)run_until(
      nodes, [] { return false; }, milliseconds / 1000.0);
}

/// Both must be told "connected", once, after both have posted.
inline void check_connected(Node& a, Node& b, std::uint16_t port = 0, double seconds = 30) {
  const cpc::ConnectionKey at_a = a.key_to(b, port);
  const cpc::ConnectionKey at_b = b.key_to(a, port);
  const bool done = run_until(
      {&a, &b}, [&] { return a.seen(at_a).fate == Fate::kConnected && b.seen(at_b).fate == Fate::kConnected; },
      seconds);
  ck_assert_msg(done, "not connected: %s %s; %s %s", a.seen(at_a).reason.c_str(), a.seen(at_a).history.c_str(),
                b.seen(at_b).reason.c_str(), b.seen(at_b).history.c_str());
  ck_assert_int_eq(a.seen(at_a).connected, 1);
  ck_assert_int_eq(b.seen(at_b).connected, 1);
}

/// Closes the connection of both and waits until it is gone.
inline void close_both(Node& a, Node& b, std::uint16_t port = 0) {
  const cpc::ConnectionKey at_a = a.key_to(b, port);
  const cpc::ConnectionKey at_b = b.key_to(a, port);
  a.close(at_a, "done");
  b.close(at_b, "done");
  ck_assert(run_until({&a, &b},
                      [&] { return a.seen(at_a).fate == Fate::kDestroyed && b.seen(at_b).fate == Fate::kDestroyed; }));
}

inline void check_text_has(const std::string& text, const std::string& part) {
  ck_assert_msg(text.find(part) != std::string::npos, "\"%s\" lacks \"%s\"", text.c_str(), part.c_str());
}

}  // namespace fabric::test
