// SPDX-License-Identifier: BSD-3-Clause
//
// Reports are not repeated: not by a process, nor by the others of its job on the same host.
#pragma once

#include <string_view>

namespace fabric {

/// Opens the list of what has been said that the processes of this job on this host share, in the job's session folder. Once,
/// when the process starts: mpirun deletes the folder as soon as a process has died, before the others have said what they
/// know, and the list is theirs all the same. Null (the process was not started by mpirun), or no room: it asks only itself.
void share_said_list(const char* session_folder) noexcept;

/// True the first time that any process of this job on this host asks with this text. For all threads, after
/// share_said_list().
[[nodiscard]] bool first_to_say(std::string_view text) noexcept;

}  // namespace fabric
