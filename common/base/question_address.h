// SPDX-License-Identifier: BSD-3-Clause
//
// Where a process is asked what it waits for: a UNIX socket whose name is in no directory (unix(7), "abstract"), so that nothing
// is left behind by who is killed. A process has its number in its own PID namespace, which others may not share.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace fabric {

struct QuestionAddress {
  sockaddr_un address{};
  socklen_t length = 0;

  /// Of the process that knows itself as `pid` in this namespace.
  QuestionAddress(std::uint64_t pid_namespace, pid_t pid) {
    const std::string name = "btl_fabric." + std::to_string(pid_namespace) + "." + std::to_string(pid);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // less than 50 of 107 bytes
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
};

/// The number of the PID namespace of a process, "self" or a number as text; 0 if it may not be known.
[[nodiscard]] inline std::uint64_t pid_namespace_of(const std::string& process) {
  struct stat found {};
  return stat(("/proc/" + process + "/ns/pid").c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace fabric
