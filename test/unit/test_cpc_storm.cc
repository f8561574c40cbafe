// SPDX-License-Identifier: BSD-3-Clause
//
// 500 rounds of connecting, checking who is connected to whom, and closing, while channels break, verbs calls fail, main
// threads compute or change their minds, and processes die: each round by its own seed, and each must end right.
#include <algorithm>
#include <array>
#include <mutex>
#include <random>
#include <string>

#include "test/unit/cpc_relay.h"

namespace fabric {
namespace {

using test::check_gone;
using test::fake_counts;
using test::Fate;
using test::Node;
using test::Relay;
using test::run_until;
using Flow = Relay::Flow;

constexpr int kRoundsPerPair = 50;

/// What goes wrong in a round.
enum class Trouble { kNone, kCuts, kCompute, kChangeOfMind, kVerbs, kDeath };
constexpr std::array kTroubles{Trouble::kNone, Trouble::kCuts, Trouble::kCompute, Trouble::kChangeOfMind,
                               Trouble::kVerbs};

/// One round of thirty is a death, which takes its time: the survivor waits for its peer to come back.
Trouble trouble_of(unsigned seed) {
  const unsigned dice = seed * 2654435761U >> 16;
  return dice % 30 == 0 ? Trouble::kDeath : kTroubles[dice / 30 % kTroubles.size()];
}

/// What a relay does to the channels of the round at hand: cuts some, each at one byte.
class Cuts {
 public:
  void plan(int count, std::size_t at, bool to_listener) {
    const std::lock_guard lock(mutex_);
    left_ = count;
    at_ = at;
    to_listener_ = to_listener;
  }
  Flow operator()(bool to_listener, std::size_t at) {
    const std::lock_guard lock(mutex_);
    if (left_ == 0 || to_listener != to_listener_ || at != at_) {
      return Flow::kPass;
    }
    --left_;
    return Flow::kCut;
  }

 private:
  std::mutex mutex_;
  int left_ = 0;
  std::size_t at_ = 0;
  bool to_listener_ = false;
};

/// Two processes with a bad network between them. Every round has a port of its own, so that what is late from the
/// last one finds nobody.
class Storm {
 public:
  explicit Storm(std::uint32_t pair)
      : a_(options(2 * pair)),
        b_(options(2 * pair + 1)),
        to_a_(a_.target(), [this](int, bool to, std::size_t at) { return cuts_(to, at); }),
        to_b_(b_.target(), [this](int, bool to, std::size_t at) { return cuts_(to, at); }) {
    to_a_.open();
    to_b_.open();
  }

  /// False if one of the processes has died in it: there are no more rounds then.
  bool round(std::uint16_t port, Trouble trouble, unsigned seed) {
    random_.seed(seed);
    trouble_ = trouble;
    at_a_ = a_.key_to(b_, port);
    at_b_ = b_.key_to(a_, port);
    begin();
    const bool alive = trouble == Trouble::kDeath ? die() : finish();
    cuts_.plan(0, 0, false);
    fake_counts.make_failures = fake_counts.connect_failures = 0;
    return alive;
  }

 private:
  static Node::Options options(std::uint32_t rank) {
    auto made = Node::options(rank);
    made.ports = kRoundsPerPair;
    made.settings.connect_limit = 1 + rank % 4;
    return made;
  }
  [[nodiscard]] bool chance(unsigned one_of) { return random_() % one_of == 0; }
  void pause() { test::run_for({&a_, &b_}, chance(2) ? 0 : static_cast<unsigned>(random_() % 5)); }

  void begin() {
    if (trouble_ == Trouble::kCuts) {
      cuts_.plan(1 + static_cast<int>(random_() % 3), random_() % 150, chance(2));
    } else if (trouble_ == Trouble::kVerbs) {
      (chance(2) ? fake_counts.make_failures : fake_counts.connect_failures) = 1;
    } else if (trouble_ == Trouble::kCompute) {
      a_.posts = chance(2);
      b_.posts = chance(2);
    }
    const auto who = random_() % 3;  // a, b or both
    if (who != 1) {
      a_.connect(at_a_, to_b_.target());
      pause();
    }
    if (who != 0) {
      b_.connect(at_b_, to_a_.target());
    }
    pause();
    if (trouble_ == Trouble::kCompute) {
      test::run_for({&a_, &b_}, 5 + static_cast<unsigned>(random_() % 30));
      a_.posts = b_.posts = true;
    } else if (trouble_ == Trouble::kChangeOfMind) {
      chance(2) ? a_.close(at_a_, "changed its mind") : b_.close(at_b_, "changed its mind");
    }
  }

  [[nodiscard]] bool connected() {
    return a_.seen(at_a_).fate == Fate::kConnected && b_.seen(at_b_).fate == Fate::kConnected;
  }
  [[nodiscard]] static bool over(const test::Seen& seen) {
    return seen.fate == Fate::kConnected || seen.fate == Fate::kDestroyed || seen.fate == Fate::kUnknown;
  }

  bool finish() {
    const bool must_connect = trouble_ != Trouble::kChangeOfMind && trouble_ != Trouble::kVerbs;
    const bool ended = run_until(
        {&a_, &b_}, [&] { return connected() || (!must_connect && over(a_.seen(at_a_)) && over(b_.seen(at_b_))); }, 20);
    ck_assert_msg(ended, "%s", describe().c_str());
    if (connected()) {
      check_linked();
    }
    test::close_both(a_, b_, at_a_.local_port);
    return true;
  }

  /// Each has said "connected", with the other's queue pairs, and they are really connected to each other.
  void check_linked() {
    const auto& ends_of_b = a_.seen(at_a_).remote_ends;
    const auto& ends_of_a = b_.seen(at_b_).remote_ends;
    ck_assert_msg(test::linked_to(ends_of_a[0]) == ends_of_b && test::linked_to(ends_of_b[0]) == ends_of_a,
                  "connected to other queue pairs: %s", describe().c_str());
  }

  /// One process is gone: the other ends, connected before or told, and its queue pairs go.
  bool die() {
    Node& victim = chance(2) ? a_ : b_;
    Node& survivor = &victim == &a_ ? b_ : a_;
    const cpc::ConnectionKey& at = &victim == &a_ ? at_b_ : at_a_;
    victim.stop();
    const bool ended = run_until(
        {&survivor}, [&] { return over(survivor.seen(at)); }, 20);
    ck_assert_msg(ended, "the survivor: %s", describe().c_str());
    survivor.close(at, "the peer has died");
    check_gone({&survivor}, survivor, at);
    return false;
  }

  std::string describe() {
    const test::Seen& a = a_.seen(at_a_);
    const test::Seen& b = b_.seen(at_b_);
    return "trouble " + std::to_string(static_cast<int>(trouble_)) + ": a " + std::to_string(static_cast<int>(a.fate)) +
           " " + a.reason + " " + a.history + "; b " + std::to_string(static_cast<int>(b.fate)) + " " + b.reason + " " +
           b.history;
  }

  Cuts cuts_;
  Node a_;
  Node b_;
  Relay to_a_;
  Relay to_b_;
  std::minstd_rand random_;
  Trouble trouble_ = Trouble::kNone;
  cpc::ConnectionKey at_a_;
  cpc::ConnectionKey at_b_;
};

/// Rounds of this test: with 5 tests, 500.
void hundred_rounds(unsigned first) {
  unsigned done = 0;
  for (std::uint32_t pair = 0; done < 100; ++pair) {
    Storm storm(pair);
    for (std::uint16_t port = 0; port < kRoundsPerPair && done < 100; ++port) {
      const unsigned seed = first + done++;
      if (!storm.round(port, trouble_of(seed), seed)) {
        break;
      }
    }
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}

START_TEST(rounds_0_to_99) {
  hundred_rounds(1);
}
END_TEST
START_TEST(rounds_100_to_199) {
  hundred_rounds(101);
}
END_TEST
START_TEST(rounds_200_to_299) {
  hundred_rounds(201);
}
END_TEST
START_TEST(rounds_300_to_399) {
  hundred_rounds(301);
}
END_TEST
START_TEST(rounds_400_to_499) {
  hundred_rounds(401);
}
END_TEST

}  // namespace
}  // namespace fabric

/// test_cpc_storm [HUNDRED]: all rounds, or one hundred of them, from 0 (cpc_storm.test runs them side by side).
int main(int argc, char** argv) {
  using namespace fabric;
  constexpr double kSeconds = 200;
  const std::array all = {rounds_0_to_99, rounds_100_to_199, rounds_200_to_299, rounds_300_to_399, rounds_400_to_499};
  if (argc > 1) {
    return test::run_suite("cpc_storm", {all.at(std::stoul(argv[1]))}, kSeconds);
  }
  return test::run_suite("cpc_storm", {all[0], all[1], all[2], all[3], all[4]}, kSeconds);
}
