// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks, for messages to users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fabric {

/// "0-3, 7" of ranks that ascend.
[[nodiscard]] inline std::string list_of_ranks(const std::vector<std::uint32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]) + (last > i ? "-" + std::to_string(ranks[last]) : "");
    i = last + 1;
  }
  return text;
}

}  // namespace fabric
