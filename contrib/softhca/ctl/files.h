// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that the user has, and those below $SOFTHCA_DIR: what programs look for in /sys/class/infiniband, and device nodes by name.
#include <string>

#include "fabric/config.h"

namespace softhca {

// All of a file that the user named, or of stdin for "-". Ends the program with a message if it cannot be read.
std::string text_of(const std::string& path);

// Empty, or what went wrong.
std::string make_files(const std::string& directory, const Config& config);

}  // namespace softhca
