// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers of things, for messages to users.
#pragma once

#include <cstdint>
#include <string>

namespace fabric {

/// "1 message", "3 messages"
[[nodiscard]] inline std::string counted(std::uint64_t count, const char* one, const char* several) {
  return std::to_string(count) + ' ' + (count == 1 ? one : several);
}

}  // namespace fabric
