// SPDX-License-Identifier: BSD-3-Clause
//
// Random schedules of a few processes that connect several ports, close them again, compute, and have few turns, over a network that
// breaks TCP connections anywhere. Whatever has happened, all are connected when nothing is in the way any more. FABRIC_SCHEDULES
// in the environment: more schedules than there are by default; FABRIC_SEED: the first one.
#include <cstdlib>
#include <random>

#include "test/unit/cpc_relay.h"
#include "test/unit/xrc_node.h"

namespace fabric {
namespace {

using test::fake_counts;
using test::Fate;
using test::Node;
using test::Relay;
using test::run_all_until;
using Flow = Relay::Flow;

constexpr std::uint16_t kPorts = 3;
constexpr std::uint32_t kNodes = 3;

unsigned number_of(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

/// Processes that reach each other through relays, which break connections while the network is bad.
class Job {
 public:
  Job(unsigned seed, bool has_xrc) : seed_(seed), random_(seed) {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      auto options = has_xrc ? test::xrc_options(rank, 11 + rank) : Node::options(rank);
      options.ports = kPorts;
      options.settings.connect_limit = 1 + random_() % 3;
      options.settings.handshake_timeout_ms = 500;
      nodes_.push_back(std::make_unique<Node>(options));
      all_.push_back(nodes_.back().get());
    }
    // Bytes to the next cut: the handshake of one link takes some 300.
    cut_after_ = 50 + static_cast<int>(random_() % 2000);
    for (const auto& node : nodes_) {
      relays_.push_back(std::make_unique<Relay>(node->target(), [this](int, bool, std::size_t) {
        return is_bad_ && ++carried_ % cut_after_ == 0 ? Flow::kCut : Flow::kPass;
      }));
      relays_.back()->open();
    }
  }
  ~Job() {
    for (const auto& node : nodes_) {
      node->stop();
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void play(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      unsigned turn = 0;
      const unsigned turns = static_cast<unsigned>(random_() % 20);
      (void)run_all_until(all_, [&] { return turn++ >= turns; });
    }
  }

  /// Nothing is in the way any more, and all have given up what there was.
  void calm_down() {
    is_bad_ = false;
    for (const auto& node : nodes_) {
      node->posts = true;
    }
    check_all("given up", [](Node& from, Node& to, std::uint16_t port) {
      return is_given_up(from, from.key_to(to, port)) && is_given_up(to, to.key_from(from, port));
    });
  }
  void connect_all() {
    each_way([this](Node& from, Node& to, std::uint16_t port) { connect(from, to, port); });
    check_all("connected", [](Node& from, Node& to, std::uint16_t port) {
      return from.seen(from.key_to(to, port)).fate == Fate::kConnected &&
             to.seen(to.key_from(from, port)).fate == Fate::kConnected;
    });
  }

 private:
  void step() {
    const std::size_t first = random_() % kNodes;
    Node& from = *nodes_[first];
    Node& to = *nodes_[(first + 1 + random_() % (kNodes - 1)) % kNodes];
    const auto port = static_cast<std::uint16_t>(random_() % kPorts);
    switch (random_() % 8) {
      case 0:
        from.close(from.key_to(to, port), "changed its mind");
        break;
      case 1:
        from.close(from.key_from(to, port), "changed its mind");
        break;
      case 2:
        from.posts = !from.posts;
        break;
      case 3:
        is_bad_ = !is_bad_;
        break;
      default:
        connect(from, to, port);
        break;
    }
  }
  /// Sees to it. What a peer still asks for is given up too.
  static bool is_given_up(Node& node, const cpc::ConnectionKey& key) {
    const bool is_gone = node.is_gone(key);
    if (!is_gone) {
      node.close(key, "done");
    }
    return is_gone;
  }
  /// As endpoints do, not while there is no answer.
  void connect(Node& from, Node& to, std::uint16_t port) {
    if (!from.seen(from.key_to(to, port)).wanted) {
      from.connect(from.key_to(to, port), relays_[to.name().rank]->target());
    }
  }
  template <class Visit>
  void each_way(Visit visit) {
    for (const auto& from : nodes_) {
      for (const auto& to : nodes_) {
        for (std::uint16_t port = 0; port < kPorts && from != to; ++port) {
          visit(*from, *to, port);
        }
      }
    }
  }
  template <class Good>
  void check_all(const char* what, Good good) {
    const auto all_are = [&] {
      bool are = true;
      each_way([&](Node& from, Node& to, std::uint16_t port) { are = are && good(from, to, port); });
      return are;
    };
    if (run_all_until(all_, all_are, 60)) {
      return;
    }
    each_way([&](Node& from, Node& to, std::uint16_t port) {
      const test::Seen& out = from.seen(from.key_to(to, port));
      const test::Seen& in = to.seen(to.key_from(from, port));
      ck_assert_msg(good(from, to, port), "seed %u: port %u of %u and %u is not %s: %d %s %s; %d %s %s", seed_, port,
                    from.name().rank, to.name().rank, what, static_cast<int>(out.fate), out.reason.c_str(),
                    out.history.c_str(), static_cast<int>(in.fate), in.reason.c_str(), in.history.c_str());
    });
  }

  const unsigned seed_;
  std::minstd_rand random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Node*> all_;
  std::atomic<bool> is_bad_ = false;
  std::atomic<int> carried_ = 0;
  int cut_after_ = 0;
  std::vector<std::unique_ptr<Relay>> relays_;  ///< last, as their threads use the others
};

void play(bool has_xrc) {
  const unsigned first = number_of("FABRIC_SEED", 1);
  for (unsigned seed = first; seed < first + number_of("FABRIC_SCHEDULES", 6); ++seed) {
    {
      Job job(seed, has_xrc);
      for (int round = 0; round < 3; ++round) {
        job.play(60);
        job.calm_down();
        job.connect_all();
      }
    }
    ck_assert_msg(fake_counts.made == fake_counts.destroyed, "seed %u leaves queue pairs", seed);
  }
}

START_TEST(all_are_connected_in_the_end) {
  play(false);
}
END_TEST

START_TEST(x_queues) {
  play(true);
  test::check_no_leak();
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("oob_streams_random", {all_are_connected_in_the_end, x_queues}, 300);
}
