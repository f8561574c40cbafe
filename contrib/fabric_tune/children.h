// SPDX-License-Identifier: BSD-3-Clause
//
// Starting a process and ending all that has come of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fabric::tune {

/// From now on this process inherits the orphans among its descendants, and hears of signals only by wait_for(): SIGCHLD, and of SIGINT,
/// SIGTERM, SIGHUP and SIGPIPE those that it does not ignore. The error number, or 0.
[[nodiscard]] int become_parent_of_all();

/// In a process group of its own, which hears SIGTERM when this process dies. `output` becomes its standard output and standard
/// error. Its standard input is this process's, from its beginning, if that is a file, and else empty. Negative: an error number.
[[nodiscard]] pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                          int output);

enum class End : std::uint8_t { kEnded, kTimeOver, kInterrupted };
struct Ended {
  End how = End::kEnded;
  int status = 0;  ///< of waitpid(2), for kEnded
};
/// Waits for a child, or until the user does not want to wait any more.
[[nodiscard]] Ended wait_for(pid_t child, std::optional<std::chrono::duration<double>> limit);

/// Has the child end, in its own way if it does so in ten seconds; what is left of its descendants is killed. None is there then.
void end(pid_t child);
/// What a child that has ended has left, after `patience`.
void end_descendants(std::chrono::milliseconds patience);

}  // namespace fabric::tune
