// SPDX-License-Identifier: BSD-3-Clause
//
// How often the device's own threads wake while the program polls for messages on a link of short latency: each time takes a
// processor from who polls, if it has none to spare, and makes a message late by far more than the latency.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;
using Clock = std::chrono::steady_clock;

/// How often threads other than the first have slept.
long sleeps_of_others() {
  long sum = 0;
  DIR* const tasks = opendir("/proc/self/task");
  ck_assert_ptr_nonnull(tasks);
  while (const dirent* const task = readdir(tasks)) {
    if (atoi(task->d_name) == 0 || atoi(task->d_name) == getpid()) continue;
    std::ifstream status("/proc/self/task/" + std::string(task->d_name) + "/status");
    const std::string key = "voluntary_ctxt_switches:";
    for (std::string line; std::getline(status, line);)
      if (line.compare(0, key.size(), key) == 0) sum += std::stol(line.substr(key.size()));
  }
  closedir(tasks);
  return sum;
}

void check_wakes() {
  // Others have had the processor if a message takes so long; a wake takes much less.
  constexpr auto kLost = std::chrono::microseconds(200);
  // After that the device's threads come in time for a few messages, and then later and later.
  constexpr long kWakesOfEach = 12;
  const World world;
  const auto [from, to] = world.pair();

  long messages = 0;
  long losses = 0;
  const long before = sleeps_of_others();
  const auto start = Clock::now();
  auto last = start;
  for (auto now = start; now - start < std::chrono::milliseconds(500); ++messages) {
    losses += now - last > kLost ? 1 : 0;
    last = now;
    ck_assert_int_eq(world.post_recv(to, 1, 8192, 64), 0);
    ck_assert_int_eq(world.post_send(from, 2, 0, 64), 0);
    (void)world.next();
    (void)world.next();
    now = Clock::now();
  }
  const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  const long sleeps = sleeps_of_others() - before;
  ck_assert_msg(sleeps <= std::max<long>(2 * taken.count(), messages / 10 + kWakesOfEach * losses),
                "%ld wakes for %ld messages in %ld ms, in which the processor was lost %ld times", sleeps, messages,
                static_cast<long>(taken.count()), losses);
}

/// Two for every processor, which compute and do nothing else.
class BusyProcesses {
 public:
  BusyProcesses() {
    const pid_t parent = getpid();
    for (long i = 0; i < 2 * sysconf(_SC_NPROCESSORS_ONLN); ++i) {
      const pid_t child = fork();
      ck_assert_int_ge(child, 0);
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned count = 0; getppid() == parent;)
          for (unsigned n = 0; n < 1'000'000; ++n) count = count + 1;
        _exit(0);
      }
      pids_.push_back(child);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> pids_;
};

START_TEST(who_polls_is_not_disturbed) {
  check_wakes();
}
END_TEST

// Then who polls is stopped now and again, and the device's threads must come. One that comes must not bring the next.
START_TEST(nor_where_others_take_the_processors) {
  const BusyProcesses others;
  check_wakes();
}
END_TEST

// Who polls serves the timers of all queue pairs, also when every call finds something: the queue is full from the start.
START_TEST(who_always_finds_something_serves_timers) {
  constexpr unsigned kRounds = 200;
  constexpr unsigned kPolls = 10;
  constexpr unsigned kCompletions = kRounds * kPolls;
  constexpr size_t kPlace = 4096;
  const World world;
  ibv_cq* const full = ibv_create_cq(world.context, kCompletions, nullptr, nullptr, 0);
  ck_assert_ptr_nonnull(full);
  ibv_qp_init_attr attr = world.qp_attributes();
  attr.send_cq = attr.recv_cq = full;
  attr.cap.max_send_wr = kCompletions;
  ibv_qp* const first = ibv_create_qp(world.pd, &attr);
  ibv_qp* const second = ibv_create_qp(world.pd, &attr);
  ck_assert(first != nullptr && second != nullptr);
  world.connect(first, second);
  for (unsigned i = 0; i < kCompletions; ++i)
    ck_assert_int_eq(world.post_rdma(first, IBV_WR_RDMA_WRITE, i, 8, world.address(2 * kPlace), world.mr->rkey), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));

  const auto [from, to] = world.pair();
  auto* const bytes = reinterpret_cast<volatile uint64_t*>(world.memory.data());
  unsigned late = 0;
  for (unsigned round = 1; round <= kRounds; ++round) {
    bytes[0] = round;
    ck_assert_int_eq(world.post_rdma(from, IBV_WR_RDMA_WRITE, round, 8, world.address(kPlace), world.mr->rkey), 0);
    for (unsigned i = 0; i < kPolls; ++i) {
      ibv_wc wc{};
      ck_assert_int_eq(ibv_poll_cq(full, 1, &wc), 1);
      for (const auto start = Clock::now(); Clock::now() - start < std::chrono::microseconds(2);) continue;
    }
    late += bytes[kPlace / sizeof bytes[0]] != round ? 1 : 0;
    (void)world.next();
  }
  ck_assert_msg(late <= kRounds / 2, "%u of %u writes were late", late, kRounds);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_wakes",
      {who_polls_is_not_disturbed, nor_where_others_take_the_processors, who_always_finds_something_serves_timers},
      300);
}
