// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Below $SOFTHCA_DIR: what programs look for in /sys/class/infiniband, and device nodes by name.
#include <string>

#include "fabric/config.h"

namespace softhca {

// Empty, or what went wrong.
std::string make_files(const std::string& directory, const Config& config);

}  // namespace softhca
