// SPDX-License-Identifier: BSD-3-Clause
//
// Reports are not repeated: not by a process, nor by the others of its job on the same host.
#pragma once

#include <string_view>

namespace fabric {

/// True the first time that any process of this job on this host asks with this text. The processes meet in the job's session
/// folder; one that has none (it was not started by mpirun) asks only itself. For all threads.
[[nodiscard]] bool first_to_say(std::string_view text) noexcept;

}  // namespace fabric
