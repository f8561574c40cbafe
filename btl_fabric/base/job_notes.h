// SPDX-License-Identifier: BSD-3-Clause
//
// Short texts that a process leaves for others of its job while all of them end, without MPI and without waiting for anybody.
#pragma once

#include <optional>
#include <string>

namespace fabric::job_notes {

/// Notes can be left and read from now on, until close(): Open MPI may end its own use of PMIx before. False if there is nobody to
/// leave them with: the process was started alone. Once, after Open MPI has begun to use PMIx.
[[nodiscard]] bool open() noexcept;
/// Leaves a note for this job. False if nobody takes it, or there is one of this name.
[[nodiscard]] bool leave(const std::string& name, const std::string& text);
/// A note that a process of this job has left; nothing if there is none yet. Waits for no process, only for an answer of the job's
/// launcher.
[[nodiscard]] std::optional<std::string> read(const std::string& name);
/// The last thing that this process has to do with notes, if open() was true.
void close() noexcept;

}  // namespace fabric::job_notes
