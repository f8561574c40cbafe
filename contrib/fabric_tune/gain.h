// SPDX-License-Identifier: BSD-3-Clause
//
// How much better runs with a proposal are than runs without it, and how sure that is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fabric::tune {

/// A run without and a run with the proposal, next to each other in time. Figures are above 0.
struct Pair {
  double before = 0;
  double after = 0;
};

/// As parts of the figure before: 0.07 is 7 % better, of a time 7 % faster.
struct Gain {
  double middle = 0;
  double low = 0;
  double high = 0;
  std::size_t runs = 0;  ///< with, and as many without

  /// The whole range is above 0.
  [[nodiscard]] bool is_sure() const noexcept { return low > 0; }
};

/// The estimate of Hodges and Lehmann: the median of the means of every two pairs' ratios (as logarithms), with the range of
/// Wilcoxon's signed-rank test around it, in which the gain is in at least nine of ten cases. Both need no normal distribution, and
/// one run in which the machine did something else moves them little. Nothing for fewer than five pairs, of which no range can be told.
[[nodiscard]] std::optional<Gain> gain_of(const std::vector<Pair>& pairs, bool higher_is_better);

/// Fewest pairs that have a range.
inline constexpr std::size_t kFewestPairs = 5;

/// The range of so many pairs begins at this of their means of two, counted from 1 and sorted, and ends at the same from the other end.
/// 0: they have no range.
[[nodiscard]] std::size_t first_mean_of_range(std::size_t pairs);

struct GainWords {
  const char* better = "faster";
  const char* worse = "slower";
};
/// "7.0 % faster (4.1 to 11 %, 5 runs)", "3 % slower (-5 to -1 %, 5 runs)"
[[nodiscard]] std::string as_text(const Gain& gain, const GainWords& words);

}  // namespace fabric::tune
