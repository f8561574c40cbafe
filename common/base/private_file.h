// SPDX-License-Identifier: BSD-3-Clause
//
// Files of a user that nobody else has a say in, whatever the folder is that they are in.
#pragma once

#include <string>

#include "common/base/result.h"

namespace fabric {

/// Opens the regular file `path` for reading and writing, with what it has in it, and makes it if there is none. It is
/// closed on exec(2), and its mode is 0600. The error: it belongs to another user, is no regular file (a symbolic link at
/// the end of `path` is not followed), or cannot be opened. The caller closes the descriptor.
[[nodiscard]] Result<int> open_private_file(const std::string& path);

}  // namespace fabric
