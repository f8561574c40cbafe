// SPDX-License-Identifier: BSD-3-Clause
//
// Runs this program once more, to do what may end or hang a process.
#pragma once

#include <string>
#include <vector>

namespace fabric::doctor {

struct ChildResult {
  std::string answer;      ///< what it wrote to the descriptor that it was given
  std::string said;        ///< what it printed
  bool has_ended = false;  ///< otherwise it was killed when its time was over
};

/// `option` and the number of a descriptor are the child's arguments; `environment`: entries of the form NAME=VALUE.
[[nodiscard]] ChildResult run_child(const char* option, const std::vector<std::string>& environment);

}  // namespace fabric::doctor
