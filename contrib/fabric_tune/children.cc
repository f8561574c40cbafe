// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/children.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>

namespace fabric::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeToEnd{10};

/// Whoever has started this process may want it to live on, as nohup(1) does.
bool is_ignored(int signal) noexcept {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// With SIGPIPE: nobody reads any more what is said.
sigset_t heard_signals() noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    if (!is_ignored(signal)) {
      sigaddset(&set, signal);
    }
  }
  sigaddset(&set, SIGCHLD);
  return set;
}

/// Of "17 (some) name) S 4 ...": 4, or nothing.
std::optional<pid_t> parent_in(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');
  pid_t parent = 0;
  if (name_end == std::string::npos || stat.size() < name_end + 5) {
    return std::nullopt;
  }
  const char* const begin = stat.data() + name_end + 4;
  return std::from_chars(begin, stat.data() + stat.size(), parent).ec == std::errc() ? std::optional(parent)
                                                                                     : std::nullopt;
}

/// All of this process.
std::vector<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) {
      continue;
    }
    std::ifstream file(at->path() / "stat");
    std::string stat;
    if (std::getline(file, stat)) {
      if (const auto parent = parent_in(stat); parent) {
        parents[pid] = *parent;
      }
    }
  }
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : parents) {
    pid_t up = parent;
    for (std::size_t steps = 0; up > 1 && up != getpid() && steps < parents.size(); ++steps) {
      const auto next = parents.find(up);
      up = next == parents.end() ? 0 : next->second;
    }
    if (up == getpid()) {
      found.push_back(pid);
    }
  }
  return found;
}

/// Those that have died; true if there are others.
bool reap() noexcept {
  pid_t dead = 0;
  while ((dead = waitpid(-1, nullptr, WNOHANG)) > 0) {
  }
  return dead == 0;
}

timespec pause_of(std::chrono::nanoseconds time) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {seconds.count(), static_cast<long>((time - seconds).count())};
}

/// A file is read from its beginning each time; nothing else can be.
int open_input() noexcept {
  struct stat input {};
  const bool is_file = fstat(STDIN_FILENO, &input) == 0 && S_ISREG(input.st_mode);
  const int opened = is_file ? open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC) : -1;
  return opened >= 0 ? opened : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& one : texts) {
    pointers.push_back(const_cast<char*>(one.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

int become_parent_of_all() {
  const sigset_t heard = heard_signals();
  return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && sigprocmask(SIG_BLOCK, &heard, nullptr) == 0 ? 0 : errno;
}

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment, int output) {
  // Between fork and exec nothing may be allocated.
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  const int input = open_input();
  const sigset_t heard = heard_signals();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
      _exit(127);  // it died before that
    }
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    sigprocmask(SIG_UNBLOCK, &heard, nullptr);
    execvpe(arguments[0], arguments.data(), variables.data());
    _exit(errno == ENOENT ? 127 : 126);
  }
  const int error = errno;
  close(input);
  if (child > 0) {
    setpgid(child, child);  // whoever comes first
  }
  return child > 0 ? child : -error;
}

Ended wait_for(pid_t child, std::optional<std::chrono::duration<double>> limit) {
  constexpr std::chrono::milliseconds kLook{500};  // a signal that comes twice is told once
  const sigset_t heard = heard_signals();
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit.value_or(std::chrono::hours(1)));
  for (;;) {
    int status = 0;
    pid_t dead = 0;
    while ((dead = waitpid(-1, &status, WNOHANG)) > 0) {
      if (dead == child) {
        return {End::kEnded, status};
      }
    }
    const auto left = until - Clock::now();
    if (limit && left <= Clock::duration::zero()) {
      return {End::kTimeOver, 0};
    }
    const timespec pause = pause_of(limit ? std::min<std::chrono::nanoseconds>(left, kLook) : kLook);
    const int signal = sigtimedwait(&heard, nullptr, &pause);
    if (signal > 0 && signal != SIGCHLD) {
      return {End::kInterrupted, 0};
    }
  }
}

void end_descendants(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLook{20};
  sigset_t death;  // others wait until somebody wants to hear them
  sigemptyset(&death);
  sigaddset(&death, SIGCHLD);
  const timespec pause = pause_of(kLook);
  const auto until = Clock::now() + patience;
  while (reap()) {
    if (Clock::now() >= until) {
      for (const pid_t one : descendants()) {
        kill(one, SIGKILL);
      }
    }
    sigtimedwait(&death, nullptr, &pause);
  }
}

void end(pid_t child) {
  kill(-child, SIGTERM);  // mpirun, which a script may have started, ends its processes, of other hosts too
  end_descendants(kTimeToEnd);
}

}  // namespace fabric::tune
