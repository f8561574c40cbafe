// SPDX-License-Identifier: BSD-3-Clause
//
// Many processes with X queues that connect to all others, in an orderly way and at random.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "test/unit/xrc_node.h"

namespace fabric {
namespace {

using test::check_no_leak;
using test::check_path;
using test::fake_senders;
using test::fake_targets;
using test::Fate;
using test::is_connected;
using test::Node;
using test::Nodes;
using test::run_all;
using test::XrcNode;

/// Twelve processes on three nodes connect to all others at once, at various speeds: each makes one sender and one target
/// for every node, whoever of them comes first.
START_TEST(one_sender_to_every_node) {
  constexpr std::uint32_t kNodes = 3;
  constexpr std::uint32_t kProcesses = 12;
  std::minstd_rand random(4711);
  {
    Nodes nodes;
    for (std::uint32_t rank = 0; rank < kProcesses; ++rank) {
      nodes.push_back(std::make_unique<XrcNode>(rank, rank % kNodes + 1));
    }
    const int rounds = 3;
    for (int round = 1; round <= rounds; ++round) {
      for (const auto& from : nodes) {
        from->posts = random() % 2 == 0;
        for (const auto& to : nodes) {
          if (from != to) {
            from->connect(*to);
          }
        }
      }
      (void)run_all(nodes, [&] { return random() % 64 == 0; });
      for (const auto& node : nodes) {
        node->posts = true;
      }
      const auto all = [&](auto each) {
        return std::all_of(nodes.begin(), nodes.end(), [&](const auto& from) {
          return std::all_of(nodes.begin(), nodes.end(),
                             [&](const auto& to) { return from == to || each(*from, *to); });
        });
      };
      ck_assert(run_all(nodes, [&] { return all(is_connected); }));
      for (const auto& from : nodes) {
        std::map<std::uint64_t, std::set<std::uint64_t>> senders;  // by the other's node
        for (const auto& to : nodes) {
          if (from != to) {
            check_path(*from, *to);
            senders[to->name().rank % kNodes].insert(from->seen(from->key_to(*to)).xrc.sender);
          }
        }
        ck_assert_uint_eq(senders.size(), kNodes);
        for (const auto& [node, numbers] : senders) {
          ck_assert_uint_eq(numbers.size(), 1);
        }
      }
      ck_assert_int_eq(fake_senders.made.load(), round * static_cast<int>(kProcesses * kNodes));
      ck_assert_int_eq(fake_targets.made(), round * static_cast<int>(kProcesses * kNodes));
      (void)all([](Node& from, Node& to) {
        from.close(from.key_to(to), "done");
        to.close(to.key_from(from), "done");
        return true;
      });
      ck_assert(run_all(nodes, [&] {
        return all([](Node& from, Node& to) { return from.is_gone(from.key_to(to)) && to.is_gone(to.key_from(from)); });
      }));
    }
  }
  check_no_leak();
}
END_TEST

/// Everybody connects and closes at random, also what is under way, and processes die. In the end nothing is left over.
START_TEST(a_storm_leaves_nothing_behind) {
  constexpr std::uint32_t kProcesses = 6;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    std::minstd_rand random(seed * 7919);
    {
      Nodes nodes;
      for (std::uint32_t rank = 0; rank < kProcesses; ++rank) {
        nodes.push_back(std::make_unique<XrcNode>(rank, rank % 2 + 1));
      }
      for (int turn = 0; turn < 150; ++turn) {
        Node& from = *nodes[random() % kProcesses];
        Node& to = *nodes[random() % kProcesses];
        if (&from == &to || !from.running() || !to.running()) {
          continue;
        }
        from.posts = random() % 3 != 0;
        const Fate out = from.seen(from.key_to(to)).fate;
        const Fate in = to.seen(to.key_from(from)).fate;
        switch (random() % 4) {
          case 0:
            if (out != Fate::kUnknown && out != Fate::kDestroyed) {
              from.close(from.key_to(to), "at random");
            }
            break;
          case 1:
            if (in != Fate::kUnknown && in != Fate::kDestroyed) {
              to.close(to.key_from(from), "at random");
            }
            break;
          default:
            if (out == Fate::kUnknown || out == Fate::kDestroyed) {
              from.seen(from.key_to(to)) = test::Seen();
              from.connect(to);
            }
        }
        (void)run_all(nodes, [&] { return random() % 4 == 0; });
        if (turn == 140) {
          nodes[random() % kProcesses]->stop();
        }
      }
      std::erase_if(nodes, [](const auto& node) { return !node->running(); });
      for (const auto& node : nodes) {
        node->posts = true;
      }
      const auto close_what_is_left = [&] {
        bool left = false;
        for (const auto& from : nodes) {
          for (std::uint32_t rank = 0; rank < kProcesses; ++rank) {
            for (const cpc::Direction way : {cpc::Direction::kOutgoing, cpc::Direction::kIncoming}) {
              const cpc::ConnectionKey key{{7, rank}, 0, 0, way};
              const Fate fate = from->seen(key).fate;
              if (fate != Fate::kUnknown && fate != Fate::kDestroyed) {
                left = true;
                from->close(key, "the end");
              }
            }
          }
        }
        return !left;
      };
      // What is under way comes up, and goes.
      (void)run_all(
          nodes, [] { return false; }, 0.1);
      ck_assert(run_all(nodes, close_what_is_left));
      const bool gone = run_all(
          nodes,
          [&] {
            return close_what_is_left() && fake_senders.made == fake_senders.destroyed && fake_targets.alive() == 0;
          },
          10);
      ck_assert_msg(gone, "seed %u: %d senders and %zu targets are left over", seed,
                    fake_senders.made - fake_senders.destroyed, fake_targets.alive());
    }
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("xoob_storm", {one_sender_to_every_node, a_storm_leaves_nothing_behind}, 300);
}
