// SPDX-License-Identifier: BSD-3-Clause
//
// How often the device's own threads wake while the program polls for messages on a link of short latency: each time takes a
// processor from who polls, if it has none to spare, and makes a message late by far more than the latency.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
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
  const World world;
  const auto [from, to] = world.pair();

  long messages = 0;
  const long before = sleeps_of_others();
  const auto start = Clock::now();
  for (; Clock::now() - start < std::chrono::milliseconds(500); ++messages) {
    ck_assert_int_eq(world.post_recv(to, 1, 8192, 64), 0);
    ck_assert_int_eq(world.post_send(from, 2, 0, 64), 0);
    (void)world.next();
    (void)world.next();
  }
  const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  const long sleeps = sleeps_of_others() - before;
  ck_assert_msg(sleeps <= 2 * taken.count(), "%ld wakes for %ld messages in %ld ms", sleeps, messages,
                static_cast<long>(taken.count()));
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

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_wakes", {who_polls_is_not_disturbed, nor_where_others_take_the_processors},
                                 300);
}
