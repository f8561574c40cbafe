// SPDX-License-Identifier: BSD-3-Clause
//
// Which of many figures stand out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fabric::doctor {

/// The middle one, of an even number the upper; 0 of none.
[[nodiscard]] inline double median(std::vector<double> figures) {
  if (figures.empty()) {
    return 0;
  }
  std::sort(figures.begin(), figures.end());
  return figures[figures.size() / 2];
}

/// With fewer figures nobody knows which of them is usual.
inline constexpr std::size_t kLeastToCompare = 3;
/// So many times the median, or so small a part of it, is far from it. Pairs at one switch and at several differ by less.
inline constexpr double kFar = 2.5;

/// Places of those that are worse than most: larger, or smaller if `more_is_better`.
[[nodiscard]] inline std::vector<std::size_t> outliers(const std::vector<double>& figures, bool more_is_better) {
  std::vector<std::size_t> found;
  const double middle = median(figures);
  for (std::size_t i = 0; i < figures.size() && figures.size() >= kLeastToCompare; ++i) {
    if (more_is_better ? figures[i] * kFar < middle : figures[i] > middle * kFar) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace fabric::doctor
