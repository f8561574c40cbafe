// SPDX-License-Identifier: BSD-3-Clause
//
// A file descriptor for reports: Open MPI opens the help file for each, which a process that is out of descriptors could not.
#pragma once

namespace fabric {

/// Takes one, unless one is kept. One that is closed by exec(2). Any thread.
void keep_spare_descriptor() noexcept;

/// Gives it back, for good or until it is kept again. Any thread.
void drop_spare_descriptor() noexcept;

}  // namespace fabric
