// SPDX-License-Identifier: BSD-3-Clause
//
// A peer is killed at its first transition, at its second, and so on, until there are no more: before it has answered,
// between the messages, after them, after its CTS, and when it is connected. The survivor hears of it in bounded time
// (at the latest when it sends), and is left with nothing.
//   test_cpc_death oob|rdmacm|ibcm ...     on the first usable port, with real queue pairs
//   test_cpc_death victim KIND RANK wants|waits STEP     what it starts
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "cpc/core/trace.h"
#include "test/unit/verbs_side.h"

extern char** environ;

namespace fabric {
namespace {

/// Steps of this process until it dies; 0: it does not.
std::atomic<int> steps_left{0};
/// REQUESTs of the peer that this process has heard.
std::atomic<int> requests_heard{0};

void step() {
  if (steps_left > 0 && --steps_left == 0) {
    kill(getpid(), SIGKILL);
  }
}

}  // namespace

// Takes the place of the library's: the trace hears of every transition of the connection table just before its actions
// are carried out.
void cpc::Trace::add(const ConnectionKey&, State, Event event, State) {
  step();
  requests_heard += event == Event::kRequestArrived ? 1 : 0;
}

namespace {

using test::VerbsSide;
using Clock = std::chrono::steady_clock;

constexpr int kToSurvivor = 9;  ///< descriptor of the victim: its stdout is for Check
constexpr double kBound = 20;   ///< seconds in which a survivor is told; most takes a second or two

cpc::ConnectionSettings impatient() {
  alignas(cpc::Trace) static std::array<std::byte, sizeof(cpc::Trace)> no_trace;
  cpc::ConnectionSettings settings;
  settings.retry_time_ms = 300;
  settings.connect_timeout_ms = 500;
  settings.handshake_timeout_ms = 1000;
  settings.trace = reinterpret_cast<cpc::Trace*>(no_trace.data());  // only its add() is used, which is ours
  return settings;
}
cpc::QueuePairSettings brisk() {
  cpc::QueuePairSettings settings;
  settings.timeout = 10;  // 4 ms
  settings.retry_count = 3;
  return settings;
}

const CpcOffer* find_kind(const std::vector<CpcOffer>& offers, CpcKind kind) {
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const CpcOffer& one) { return one.kind == kind; });
  return found == offers.end() ? nullptr : &*found;
}

// ---- What two processes tell each other over a pipe: where they are reached

void write_offer(int fd, const CpcOffer& offer) {
  const auto size = static_cast<std::uint16_t>(offer.blob.size());
  ck_assert(write(fd, &size, sizeof size) == sizeof size && write(fd, offer.blob.data(), size) == size);
}

CpcOffer read_offer(int fd, CpcKind kind) {
  CpcOffer offer;
  offer.kind = kind;
  std::uint16_t size = 0;
  ck_assert(read(fd, &size, sizeof size) == sizeof size);
  offer.blob.resize(size);
  ck_assert(read(fd, offer.blob.data(), size) == size);
  return offer;
}

cpc::ConnectionKey key_of(std::uint32_t rank) {
  return {{1, rank}, 0, 0};
}

// ---- The victim

[[noreturn]] void be_victim(CpcKind kind, std::uint32_t rank, bool wants, int steps) {
  VerbsSide side(rank, impatient(), brisk());
  side.expect_failure();
  const auto offers = side.offers();
  // Who has the offer may connect, which the progress thread answers while this one is not running.
  steps_left = steps;
  write_offer(kToSurvivor, *find_kind(offers, kind));
  const CpcOffer survivor = read_offer(STDIN_FILENO, kind);
  if (wants) {
    side.connect(key_of(1), survivor);
  }
  auto since = Clock::now();
  auto seen = side.state();
  for (;;) {
    side.pump();
    if (side.state() != seen) {
      seen = side.state();
      step();
    }
    if (!side.connected()) {
      since = Clock::now();
    } else if (Clock::now() - since > std::chrono::milliseconds(300)) {
      break;  // there are fewer steps than that
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  ck_assert(write(kToSurvivor, "c", 1) == 1);
  for (;;) {
    pause();
  }
}

// ---- The survivor

struct Victim {
  pid_t pid = 0;
  int to = -1;
  int from = -1;

  Victim(CpcKind kind, std::uint32_t rank, bool wants, int steps) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    ck_assert(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], kToSurvivor);
    std::vector<std::string> words{"test_cpc_death",
                                   "victim",
                                   std::string(cpc::cpc_name(kind)),
                                   std::to_string(rank),
                                   wants ? "wants" : "waits",
                                   std::to_string(steps)};
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    ck_assert_int_eq(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to = in[1];
    from = out[0];
  }
  ~Victim() {
    finish();
    close(to);
    close(from);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  [[nodiscard]] bool is_dead() {
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid) {
      ck_assert_msg(WIFSIGNALED(status), "the victim ended by itself, status %d", status);
      pid = 0;
    }
    return pid == 0;
  }
  /// It says that it is connected and has no more steps to make.
  [[nodiscard]] bool is_connected() const {
    pollfd waiting{from, POLLIN, 0};
    char byte = 0;
    return poll(&waiting, 1, 0) == 1 && read(from, &byte, 1) == 1;
  }
  void finish() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      pid = 0;
    }
  }
};

template <class Done>
bool pump_until(VerbsSide& side, Done done, double seconds) {
  const auto limit = Clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (Clock::now() > limit) {
      return false;
    }
    side.pump();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

/// One death. True if the victim outlived its steps: it was killed when it was connected.
bool die(VerbsSide& survivor, CpcKind kind, std::uint32_t rank, bool we_want, bool it_wants, int steps) {
  Victim victim(kind, rank, it_wants, steps);
  const CpcOffer offer = read_offer(victim.from, kind);
  const auto own = survivor.offers();
  write_offer(victim.to, *find_kind(own, kind));
  survivor.expect(1000);  // none of which is waited for
  if (we_want) {
    survivor.connect(key_of(rank), offer);
  }
  bool outlived = false;
  ck_assert_msg(pump_until(
                    survivor, [&] { return (outlived = victim.is_connected()) || victim.is_dead(); }, 30),
                "neither dead nor connected: %s", survivor.describe().c_str());
  if (outlived) {
    ck_assert(survivor.connected());
    victim.finish();
  }
  const auto start = Clock::now();
  auto next_send = start;
  const auto told = [&] {
    // What is sent in the moment of death may still be taken.
    if (survivor.connected() && survivor.failure().empty() && Clock::now() > next_send) {
      survivor.send(0);
      next_send = Clock::now() + std::chrono::milliseconds(100);
    }
    const bool knows_of_none = !we_want && !survivor.has_queue_pairs();
    return !survivor.failure().empty() || (knows_of_none && Clock::now() - start > std::chrono::seconds(2));
  };
  ck_assert_msg(pump_until(survivor, told, kBound), "not told: %s, %s, step %d: %s",
                std::string(cpc::cpc_name(kind)).c_str(), it_wants ? "it wanted" : "we wanted", steps,
                survivor.describe().c_str());
  std::printf("%s, %s%s, step %d%s: %.1f s: %s\n", std::string(cpc::cpc_name(kind)).c_str(), we_want ? "we want" : "",
              it_wants ? " it wants" : "", steps, outlived ? " (connected)" : "",
              std::chrono::duration<double>(Clock::now() - start).count(),
              survivor.failure().empty() ? "never heard of it" : survivor.failure().c_str());
  std::fflush(stdout);
  survivor.close(key_of(rank));
  ck_assert_msg(pump_until(
                    survivor, [&] { return survivor.is_flushed(); }, kBound),
                "not flushed: %s", survivor.describe().c_str());
  survivor.destroy();
  return outlived;
}

std::vector<CpcKind> kinds;

void die_at_every_step(bool we_want, bool it_wants) {
  VerbsSide survivor(1, impatient(), brisk());
  survivor.expect_failure();
  std::uint32_t rank = 2;
  for (const CpcKind kind : kinds) {
    const auto own = survivor.offers();
    ck_assert_msg(find_kind(own, kind) != nullptr, "%s does not serve the port",
                  std::string(cpc::cpc_name(kind)).c_str());
    int steps = 1;
    while (!die(survivor, kind, rank++, we_want, it_wants, steps)) {
      ck_assert_int_lt(++steps, 30);
    }
    ck_assert_int_ge(steps, 3);
  }
}

START_TEST(survivor_wants) {
  die_at_every_step(true, false);
}
END_TEST
START_TEST(victim_wants) {
  die_at_every_step(false, true);
}
END_TEST
START_TEST(both_want) {
  die_at_every_step(true, true);
}
END_TEST

/// The victim dies of our REPLY. We begin anew when it does not come back, and poll the flushed receives of the first
/// connection when those of the second are posted.
START_TEST(flushed_late) {
  cpc::ConnectionSettings settings = impatient();
  settings.connect_timeout_ms = 20000;  // the victim has one attempt
  VerbsSide survivor(1, settings, brisk());
  survivor.expect_failure();
  Victim victim(cpc::kOob.kind, 2, true, 3);
  const CpcOffer offer = read_offer(victim.from, cpc::kOob.kind);
  const auto own = survivor.offers();
  write_offer(victim.to, *find_kind(own, cpc::kOob.kind));
  survivor.posts = false;  // ours would have precedence
  survivor.connect(key_of(2), offer);
  ck_assert(pump_until(
      survivor, [] { return requests_heard > 0; }, kBound));
  survivor.posts = true;
  survivor.polls = false;
  ck_assert(pump_until(
      survivor, [&] { return survivor.posted_connections() == 2; }, kBound));
  survivor.polls = true;
  ck_assert(pump_until(
      survivor, [&] { return !survivor.failure().empty(); }, kBound));
  survivor.close(key_of(2));
  ck_assert_msg(pump_until(
                    survivor, [&] { return survivor.is_flushed(); }, kBound),
                "not flushed: %s", survivor.describe().c_str());
}
END_TEST

CpcKind kind_of(std::string_view name) {
  for (const cpc::CpcTraits& one : cpc::kCpcTraits) {
    if (one.name == name) {
      return one.kind;
    }
  }
  std::fputs("usage: test_cpc_death oob|rdmacm|ibcm ...\n", stderr);
  std::exit(2);
}

/// A victim is a test of its own, since what a side checks needs one around it.
std::vector<std::string> arguments;
START_TEST(victim) {
  be_victim(kind_of(arguments[2]), static_cast<std::uint32_t>(std::stoul(arguments[3])), arguments[4] == "wants",
            std::stoi(arguments[5]));
}
END_TEST

}  // namespace
}  // namespace fabric

int main(int argc, char** argv) {
  using namespace fabric;
  arguments.assign(argv, argv + argc);
  if (argc == 6 && arguments[1] == "victim") {
    setenv("CK_FORK", "no", 1);  // what is killed is this process
    return test::run_suite("victim", {victim});
  }
  for (int i = 1; i < argc; ++i) {
    kinds.push_back(kind_of(arguments[static_cast<std::size_t>(i)]));
  }
  const int status = test::run_suite("cpc_death", {survivor_wants, victim_wants, both_want}, 400);
  return kinds.front() == cpc::kOob.kind ? status | test::run_suite("cpc_death_by_oob", {flushed_late}) : status;
}
