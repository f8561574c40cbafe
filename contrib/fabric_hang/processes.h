// SPDX-License-Identifier: BSD-3-Clause
//
// The processes of this host that run the component, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace fabric::hang {

/// A process that runs the component.
struct Process {
  pid_t pid = 0;
  pid_t own_pid = 0;                ///< as it knows itself, in its PID namespace
  std::uint64_t pid_namespace = 0;  ///< 0: it may not be known
  std::string program;
  // As its launcher has told it, for a process that does not answer
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> job;  ///< Open MPI 4.1 only
};

/// The process with this number. The error: why it cannot be asked (it is gone, another user's, or does not run the component).
[[nodiscard]] Result<Process> process(pid_t pid);

/// All that run the component and are this user's; for root, everybody's.
[[nodiscard]] std::vector<Process> own_processes();
/// Those of them that `ancestor` has started, directly or not.
[[nodiscard]] std::vector<Process> descendants(pid_t ancestor);

/// What a process does that does not answer.
struct Activity {
  char state = '?';  ///< of its main thread, as in proc(5): R, S, D, T, t, Z
  std::string
      in_kernel;  ///< the function of the kernel in which it sleeps; empty if it does not, or it may not be known
};
/// Nothing if it is gone.
[[nodiscard]] std::optional<Activity> activity(pid_t pid);

}  // namespace fabric::hang
