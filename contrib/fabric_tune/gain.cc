// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/gain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fabric::tune {
namespace {

/// Probability with which the gain is outside of the range, on one side.
constexpr double kOutside = 0.05;

std::string percent(double part) {
  const double value = part * 100;
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) < 9.95 ? "%.1f" : "%.0f", value == 0 ? 0 : value);
  return text;
}

}  // namespace

std::size_t first_mean_of_range(std::size_t pairs) {
  // Of each number, in how many ways the ranks of the pairs that are above 0 can sum up to it. All 2^pairs are as likely if there
  // is no gain.
  std::vector<double> ways(pairs * (pairs + 1) / 2 + 1, 0);
  ways[0] = 1;
  for (std::size_t rank = 1; rank <= pairs; ++rank) {
    for (std::size_t sum = ways.size() - 1; sum >= rank; --sum) {
      ways[sum] += ways[sum - rank];
    }
  }
  const double all = std::pow(2.0, static_cast<double>(pairs));
  double below = 0;
  std::size_t first = 0;
  while (first < ways.size() && (below += ways[first]) / all <= kOutside) {
    ++first;
  }
  return first;
}

std::optional<Gain> gain_of(const std::vector<Pair>& pairs, bool higher_is_better) {
  const std::size_t first = first_mean_of_range(pairs.size());
  if (pairs.size() < kFewestPairs || first == 0) {
    return std::nullopt;
  }
  std::vector<double> gains;
  for (const Pair& pair : pairs) {
    gains.push_back(higher_is_better ? std::log(pair.after / pair.before) : std::log(pair.before / pair.after));
  }
  std::vector<double> means;
  for (std::size_t i = 0; i < gains.size(); ++i) {
    for (std::size_t j = i; j < gains.size(); ++j) {
      means.push_back((gains[i] + gains[j]) / 2);
    }
  }
  std::sort(means.begin(), means.end());
  const std::size_t last = means.size() - 1;
  return Gain{.middle = std::expm1((means[last / 2] + means[(last + 1) / 2]) / 2),
              .low = std::expm1(means[first - 1]),
              .high = std::expm1(means[last - (first - 1)]),
              .runs = pairs.size()};
}

std::string as_text(const Gain& gain, const GainWords& words) {
  const std::string range =
      " (" + percent(gain.low) + " to " + percent(gain.high) + " %, " + std::to_string(gain.runs) + " runs)";
  return percent(std::abs(gain.middle)) + " % " + (gain.middle < 0 ? words.worse : words.better) + range;
}

}  // namespace fabric::tune
