// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>

#include "cpc/loop/file_descriptor.h"

namespace fabric::doctor {
namespace {

using cpc::FileDescriptor;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kTimeToEnd = std::chrono::seconds(5);

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return {};
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// Reads what there is; false when nothing will come any more.
bool read_some(int descriptor, std::string& into) {
  std::array<char, 4096> bytes;
  const ssize_t count = read(descriptor, bytes.data(), bytes.size());
  if (count > 0) {
    into.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return count > 0;
}

/// Until the child has closed both, or time is over.
void read_all(int answer, int said, ChildResult& result) {
  auto end = Clock::now() + kPatience;
  std::array<pollfd, 2> wanted{pollfd{answer, POLLIN, 0}, pollfd{said, POLLIN, 0}};
  while (wanted[0].fd >= 0 || wanted[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || poll(wanted.data(), wanted.size(), static_cast<int>(left)) <= 0) {
      result.has_ended = wanted[0].fd < 0;
      return;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].revents != 0 && !read_some(wanted[i].fd, i == 0 ? result.answer : result.said)) {
        wanted[i].fd = -1;
        end = std::min(end, Clock::now() + kTimeToEnd);  // nothing more is wanted of it
      }
    }
  }
  result.has_ended = true;
}

}  // namespace

ChildResult run_child(const char* option, const std::vector<std::string>& environment) {
  ChildResult result;
  Pipe answer = make_pipe();
  Pipe said = make_pipe();
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  // Between fork and exec nothing may be allocated.
  std::vector<char*> variables;
  for (const std::string& one : environment) {
    variables.push_back(const_cast<char*>(one.c_str()));
  }
  variables.push_back(nullptr);
  const std::string number = std::to_string(answer.write.get());
  std::array<char*, 4> arguments{const_cast<char*>("fabric_doctor"), const_cast<char*>(option),
                                 const_cast<char*>(number.c_str()), nullptr};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // what hangs would outlive a doctor that is ended
    if (getppid() != parent) {
      _exit(127);  // it died before that
    }
    fcntl(answer.write.get(), F_SETFD, 0);
    dup2(nothing.get(), STDIN_FILENO);
    dup2(said.write.get(), STDOUT_FILENO);
    dup2(said.write.get(), STDERR_FILENO);
    execve("/proc/self/exe", arguments.data(), variables.data());
    _exit(127);
  }
  if (child < 0) {
    result.has_ended = true;
    return result;
  }
  answer.write = {};
  said.write = {};
  read_all(answer.read.get(), said.read.get(), result);
  kill(-child, SIGKILL);  // a daemon that it has started, or itself
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return result;
}

}  // namespace fabric::doctor
