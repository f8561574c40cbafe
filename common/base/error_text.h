// SPDX-License-Identifier: BSD-3-Clause
//
// What an errno value means to a user.
#pragma once

#include <string>

namespace fabric {

/// strerror(3), and of file descriptors the limit that was reached and how to raise it: "Too many open files (this process
/// may have 1024: raise ulimit -n)". Needs no descriptor itself. Any thread.
[[nodiscard]] std::string describe_errno(int error_number);

/// True if this process or its host is short of file descriptors or memory: socket(2) and accept(2) may succeed later.
[[nodiscard]] bool is_shortage(int error_number) noexcept;

}  // namespace fabric
