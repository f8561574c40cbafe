// SPDX-License-Identifier: BSD-3-Clause
//
// Text of others, for a terminal that obeys some bytes.
#pragma once

#include <algorithm>
#include <string>

namespace fabric {

/// What is safe to print: a question mark stands for anything but printable ASCII.
[[nodiscard]] inline std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace fabric
