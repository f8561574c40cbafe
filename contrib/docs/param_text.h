// SPDX-License-Identifier: BSD-3-Clause
//
// What README and the manual page say of a parameter's values.
#pragma once

#include <string>

#include "btl_fabric/base/param_table.h"

namespace fabric::docs {

/// The values that a parameter takes: "text", or a range of numbers.
inline std::string range_of(const ParamSpec& spec) {
  if (spec.number == nullptr) {
    return "text";
  }
  if (spec.max == kNoLimit) {
    return std::to_string(spec.min) + " or more";
  }
  return std::to_string(spec.min) + " to " + std::to_string(spec.max);
}

/// Its default as the user would write it, or nothing.
inline std::string default_of(const ParamSpec& spec) {
  if (spec.number != nullptr) {
    return std::to_string(spec.default_number);
  }
  return spec.default_text == nullptr ? "" : spec.default_text;
}

}  // namespace fabric::docs
