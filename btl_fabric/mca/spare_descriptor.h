// SPDX-License-Identifier: BSD-3-Clause
//
// A file descriptor for reports: Open MPI opens the help file for each, which a process that is out of descriptors could not.
#pragma once

#include <functional>

namespace fabric {

/// Takes one, unless one is kept. One that is closed by exec(2). Any thread.
void keep_spare_descriptor() noexcept;

/// Gives it back, for good or until it is kept again. Any thread.
void drop_spare_descriptor() noexcept;

/// Runs `use`, which may open one file, while the caller waits: in a thread with descriptors of its own, where the spare one
/// is free for it alone (unshare(2), CLONE_FILES). Whoever tries again to open a socket would otherwise be faster now and
/// then. Where the kernel refuses that (a container's rules), on the caller's thread, with the spare one free for all.
/// `use` does not throw, and keeps nothing open. One thread at a time.
void with_spare_descriptor(const std::function<void()>& use);

}  // namespace fabric
