// SPDX-License-Identifier: BSD-3-Clause
//
// The name of this host.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace fabric {

/// As gethostname(2) gives it, without the end of one that is longer than 255 bytes; "unknown host" where it gives none.
[[nodiscard]] inline std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

}  // namespace fabric
