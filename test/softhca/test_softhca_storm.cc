// SPDX-License-Identifier: BSD-3-Clause
//
// Processes that send to each other, write, read and add in each other's memory, over RC, XRC, UD and shared receive queues, while one
// after another is killed at any moment and started anew. Who is left sees errors of what it sent to the dead, and nothing else: no
// word that is not meant for it, no message lost or twice, nothing that does not end; and it connects to the newcomer. From time to
// time nobody is killed until every pair has done everything again.
//
//   test_softhca_storm [SECONDS [SEED [PROCESSES]]]
//
// Newcomers get the number of the dead process where /proc/sys/kernel/ns_last_pid can be written (unshare --user --map-root-user --pid
// --fork --mount-proc, for a number space of its own) and SOFTHCA_STORM_SAME_PID is in the environment.
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "test/softhca/storm_peer.h"

extern char** environ;

namespace storm {
namespace {

constexpr auto kStorm = std::chrono::seconds(5);  // between two times of calm
constexpr uint64_t kMuch = 8;                     // of each kind, in a time of calm

class Coordinator {
 public:
  Coordinator(unsigned seed, unsigned peers)
      : seed_(seed),
        random_(seed),
        peers_(peers),
        board_fd_(memfd_create("board", 0)),
        domain_fd_(memfd_create("domain", 0)),
        same_pid_(getenv("SOFTHCA_STORM_SAME_PID") != nullptr) {
    if (board_fd_ < 0 || domain_fd_ < 0 || ftruncate(board_fd_, sizeof(Board)) != 0) _exit(2);
    board_ = map(board_fd_);
    for (unsigned i = 0; i < peers_; ++i) start(i);
  }

  static Board* map(int fd) {
    void* at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) _exit(2);
    return static_cast<Board*>(at);
  }

  /// True: nothing was wrong.
  bool run(std::chrono::seconds time) {
    const auto end = Clock::now() + time;
    bool good = true;
    do {
      good = good && rage(std::min(end, Clock::now() + kStorm)) && calm();
    } while (good && Clock::now() < end);
    for (unsigned i = 0; i < peers_; ++i) kill_one(i);
    return good && !board_->failed;
  }

  void report() const {
    printf("%u processes, %u killed (%u newcomers had the number of the dead):", peers_, killed_, same_pids_);
    for (unsigned kind = 0; kind < kKinds; ++kind) {
      uint64_t sum = 0;
      for (const auto& from : board_->done)
        for (const auto& to : from) sum += to[kind];
      printf(" %llu %s%s", static_cast<unsigned long long>(sum), kKindNames[kind], kind + 1 < kKinds ? "," : "\n");
    }
  }

 private:
  void start(unsigned i) {
    const uint32_t life = ++lives_[i];
    if (life >= kLives) {
      fprintf(stderr, "this storm is too long: a process has had %u lives\n", life);
      _exit(2);
    }
    const std::string words[] = {"peer",
                                 std::to_string(peers_),
                                 std::to_string(i),
                                 std::to_string(life),
                                 std::to_string(seed_),
                                 std::to_string(board_fd_),
                                 std::to_string(domain_fd_)};
    std::vector<char*> arguments;
    char program[] = "/proc/self/exe";
    arguments.push_back(program);
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t old = pids_[i];
    if (same_pid_ && old > 0) ask_for_pid(old);
    if (posix_spawn(&pids_[i], program, nullptr, nullptr, arguments.data(), environ) != 0) {
      perror("posix_spawn");
      _exit(2);
    }
    if (pids_[i] == old) ++same_pids_;
  }

  static void ask_for_pid(pid_t pid) {
    const std::string last = std::to_string(pid - 1);
    const int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    [[maybe_unused]] const ssize_t written = write(fd, last.data(), last.size());
    close(fd);
  }

  void kill_one(unsigned i) {
    board_->places[i].doomed = lives_[i];
    kill(pids_[i], SIGKILL);
    int status = 0;
    waitpid(pids_[i], &status, 0);
    // It may have said what is wrong, and then it has ended so; a kill by anybody else looks like this one.
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) ended_badly(i, status);
    ++killed_;
  }

  void ended_badly(unsigned i, int status) {
    if (WIFSIGNALED(status))
      fprintf(stderr, "FAILED: process %u, life %u: %s\n", i, lives_[i], strsignal(WTERMSIG(status)));
    else
      fprintf(stderr, "FAILED: process %u, life %u: exit status %d\n", i, lives_[i], WEXITSTATUS(status));
    board_->failed = true;
  }

  unsigned random(unsigned below) { return static_cast<unsigned>(random_() % below); }
  void wait_microseconds(unsigned most) { usleep(random(most)); }

  // Kills until then. False: something is wrong.
  bool rage(Clock::time_point until) {
    while (Clock::now() < until && !board_->failed) {
      // Often one that has hardly begun, sometimes two at a time.
      wait_microseconds(random(4) == 0 ? 5'000 : 200'000);
      const unsigned first = random(peers_);
      const unsigned second = random(8) == 0 ? random(peers_) : first;
      kill_one(first);
      if (second != first) kill_one(second);
      if (random(2) == 0) wait_microseconds(50'000);
      start(first);
      if (second != first) start(second);
    }
    return !board_->failed;
  }

  // Waits until every pair has done much of everything. False: that takes too long, or something is wrong.
  bool calm() {
    uint64_t before[kPeers][kPeers][kKinds];
    for (unsigned from = 0; from < peers_; ++from)
      for (unsigned to = 0; to < peers_; ++to)
        for (unsigned kind = 0; kind < kKinds; ++kind) before[from][to][kind] = board_->done[from][to][kind];
    for (unsigned from = 0; from < peers_; ++from)
      for (unsigned to = 0; to < peers_; ++to)
        for (unsigned kind = 0; kind < kKinds; ++kind)
          if (from != to && !goes_on(from, to, kind, before[from][to][kind])) return false;
    return true;
  }

  // On a busy machine without process_vm_readv this is slow: what may not be is that nothing happens.
  bool goes_on(unsigned from, unsigned to, unsigned kind, uint64_t before) {
    const std::atomic<uint64_t>& done = board_->done[from][to][kind];
    uint64_t last = before;
    for (auto until = Clock::now() + kPatience; done - before < kMuch; usleep(1000)) {
      if (!all_live()) return false;
      if (done != last) {
        last = done;
        until = Clock::now() + kPatience;
      } else if (Clock::now() > until) {
        fprintf(stderr, "FAILED: from process %u, life %u, to process %u, life %u: no more %s\n", from, lives_[from],
                to, lives_[to], kKindNames[kind]);
        board_->failed = true;
        return false;
      }
    }
    return true;
  }

  bool all_live() {
    for (unsigned i = 0; i < peers_; ++i) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pids_[i]), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
        fprintf(stderr, "process %u, life %u, has ended\n", i, lives_[i]);
        board_->failed = true;
      }
    }
    return !board_->failed;
  }

  const unsigned seed_;
  std::mt19937 random_;
  const unsigned peers_;
  const int board_fd_;
  const int domain_fd_;
  const bool same_pid_;
  Board* board_ = nullptr;
  pid_t pids_[kPeers] = {};
  uint32_t lives_[kPeers] = {};
  unsigned killed_ = 0;
  unsigned same_pids_ = 0;
};

int be_peer(char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto number = [&](int i) { return static_cast<unsigned>(strtoul(argv[i], nullptr, 10)); };
  Peer peer(Coordinator::map(atoi(argv[6])), number(2), number(3), number(4), number(5), atoi(argv[7]));
  peer.run();
}

}  // namespace
}  // namespace storm

int main(int argc, char** argv) {
  if (argc == 8 && std::string(argv[1]) == "peer") return storm::be_peer(argv);
  const int seconds = argc > 1 ? atoi(argv[1]) : 20;
  const auto seed = static_cast<unsigned>(argc > 2 ? strtoul(argv[2], nullptr, 0) : std::random_device()());
  const auto peers = static_cast<unsigned>(argc > 3 ? atoi(argv[3]) : 6);
  if (seconds <= 0 || peers < 2 || peers > storm::kPeers) {
    fprintf(stderr, "usage: %s [SECONDS [SEED [PROCESSES]]], 2 to %u processes\n", argv[0], storm::kPeers);
    return 2;
  }
  printf("seed %u\n", seed);
  fflush(stdout);
  storm::Coordinator coordinator(seed, peers);
  const bool good = coordinator.run(std::chrono::seconds(seconds));
  coordinator.report();
  if (!good) fprintf(stderr, "to repeat it: %s %d %u %u\n", argv[0], seconds, seed, peers);
  return good ? 0 : 1;
}
