// SPDX-License-Identifier: BSD-3-Clause
//
// A check of options that are numbers with a fraction.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace fabric {

/// CLI::Range, for numbers: nan, of which every comparison is false, is in any range of that.
[[nodiscard]] inline CLI::Validator finite_range(double least, double most) {
  return CLI::Range(least, most) & CLI::Validator(
                                       [](const std::string& text) {
                                         double value = 0;
                                         return CLI::detail::lexical_cast(text, value) && std::isfinite(value)
                                                    ? std::string()
                                                    : "Value " + text + " is no number";
                                       },
                                       "");
}

}  // namespace fabric
