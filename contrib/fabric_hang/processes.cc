// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/processes.h"

#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/base/printable.h"
#include "common/base/question_address.h"

namespace fabric::hang {
namespace {

constexpr std::string_view kComponent = "mca_btl_fabric.so";

std::string path_of(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// Nothing, and errno is set, if it cannot be read. A process may end meanwhile: libstdc++ throws what read(2) says then.
std::optional<std::string> contents(const std::string& path) try {
  errno = 0;
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return file.bad() || (text.empty() && errno != 0) ? std::nullopt : std::optional(std::move(text));
} catch (const std::ios_base::failure& error) {
  errno = error.code().value();
  return std::nullopt;
}

std::optional<uid_t> owner_of(pid_t pid) {
  struct stat found {};
  return stat(path_of(pid, "").c_str(), &found) == 0 ? std::optional(found.st_uid) : std::nullopt;
}

std::string name_of(uid_t user) {
  const passwd* const entry = getpwuid(user);
  return entry != nullptr ? entry->pw_name : std::to_string(user);
}

/// What is safe to print, and no riddle to JSON: a process chooses its name itself, and the kernel cuts it at some byte.
std::string name_in(std::string comm) {
  while (!comm.empty() && comm.back() == '\n') {
    comm.pop_back();
  }
  return printable(std::move(comm));
}

/// What follows the name of the program in /proc/PID/stat, which may hold anything.
std::optional<std::string> after_name(const std::string& path) {
  const auto stat = contents(path);
  const std::size_t end = stat ? stat->rfind(')') : std::string::npos;
  return end == std::string::npos ? std::nullopt : std::optional(stat->substr(std::min(end + 2, stat->size())));
}

std::optional<pid_t> parent_of(pid_t pid) {
  const auto rest = after_name(path_of(pid, "stat"));
  if (!rest) {
    return std::nullopt;
  }
  std::istringstream fields(*rest);
  char state = 0;
  pid_t parent = 0;
  return fields >> state >> parent ? std::optional(parent) : std::nullopt;
}

/// The last of the numbers that it has, one for each PID namespace from ours inwards.
pid_t own_number(pid_t pid) {
  const std::string status = contents(path_of(pid, "status")).value_or("");
  const std::size_t begin = status.find("\nNSpid:");
  if (begin == std::string::npos) {
    return pid;
  }
  std::istringstream numbers(status.substr(begin + 7, status.find('\n', begin + 1) - begin - 7));
  pid_t last = pid;
  for (pid_t one = 0; numbers >> one;) {
    last = one;
  }
  return last;
}

/// A number in the environment that a process was started with.
std::optional<std::uint32_t> number_in(const std::string& environment, const std::string& name) {
  const std::string entry = '\0' + name + '=';
  const std::size_t at = environment.find(entry);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t begin = at + entry.size();
  const std::size_t end = std::min(environment.find('\0', begin), environment.size());
  std::uint32_t number = 0;
  const auto [last, error] = std::from_chars(environment.data() + begin, environment.data() + end, number);
  return error == std::errc() && last == environment.data() + end ? std::optional(number) : std::nullopt;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (folder == nullptr) {
    return found;
  }
  for (const dirent* entry = readdir(folder.get()); entry != nullptr; entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr == name.data() + name.size()) {
      found.push_back(pid);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Result<Process> process(pid_t pid) {
  const std::string who = "process " + std::to_string(pid);
  const auto owner = owner_of(pid);
  if (!owner) {
    return failure(who + ": there is none");
  }
  const auto maps = contents(path_of(pid, "maps"));
  if (!maps && (errno == EACCES || errno == EPERM)) {
    return failure(who + ": belongs to " + name_of(*owner) +
                   ", and may not be looked at; ask as that user, or as root");
  }
  if (!maps || maps->find(kComponent) == std::string::npos) {
    return failure(who + ": does not run btl_fabric");
  }
  const std::string environment = '\0' + contents(path_of(pid, "environ")).value_or("");
  Process found{pid,
                own_number(pid),
                pid_namespace_of(std::to_string(pid)),
                name_in(contents(path_of(pid, "comm")).value_or("")),
                number_in(environment, "PMIX_RANK"),
                number_in(environment, "PMIX_NAMESPACE")};
  return found;
}

std::vector<Process> own_processes() {
  std::vector<Process> found;
  const uid_t user = geteuid();
  for (const pid_t pid : all_processes()) {
    if (const auto owner = owner_of(pid); owner && (*owner == user || user == 0)) {
      if (auto one = process(pid)) {
        found.push_back(std::move(*one));
      }
    }
  }
  return found;
}

std::vector<Process> descendants(pid_t ancestor) {
  std::vector<Process> found = own_processes();
  std::erase_if(found, [&](const Process& one) {
    pid_t pid = one.pid;
    while (pid > 1 && pid != ancestor) {
      pid = parent_of(pid).value_or(0);
    }
    return pid != ancestor;
  });
  return found;
}

std::optional<Activity> activity(pid_t pid) {
  const std::string main_thread = "task/" + std::to_string(pid) + "/";
  const auto rest = after_name(path_of(pid, (main_thread + "stat").c_str()));
  if (!rest || rest->empty()) {
    return std::nullopt;
  }
  Activity found{rest->front(), contents(path_of(pid, (main_thread + "wchan").c_str())).value_or("")};
  if (found.in_kernel == "0" || found.state == 'R') {
    found.in_kernel.clear();
  }
  return found;
}

}  // namespace fabric::hang
