// SPDX-License-Identifier: BSD-3-Clause
//
// For misspelt names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace fabric {

/// Characters to insert, leave out or replace to make `to` of `from` (V. Levenshtein, 1966).
[[nodiscard]] inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t i = 0; i <= to.size(); ++i) {
    row[i] = i;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = corner + (from[i] == to[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// The one of `known` that is most like `name`, if it is like it at all: no more than a third of `name` differs, or it begins with it.
/// Empty if there is none.
[[nodiscard]] inline std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(name.size() / 3, 2) + 1;
  for (const std::string_view one : known) {
    if (const std::size_t distance = edit_distance(name, one); distance < least) {
      least = distance;
      best = one;
    }
  }
  if (best.empty()) {
    const auto longer =
        std::find_if(known.begin(), known.end(), [name](std::string_view one) { return one.starts_with(name); });
    best = longer != known.end() ? *longer : best;
  }
  return best;
}

}  // namespace fabric
