// SPDX-License-Identifier: BSD-3-Clause
//
// What users write for the numbers of param_table.h, and what they may be.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "btl_fabric/base/param_table.h"

namespace fabric {

/// What a number may be: "between 0 and 7", "at least 1", "between -1 and 255, or auto", "at least 0; ms, s or min may follow".
[[nodiscard]] inline std::string allowed_values(const ParamSpec& spec) {
  std::string allowed = spec.max == kNoLimit
                            ? "at least " + std::to_string(spec.min)
                            : "between " + std::to_string(spec.min) + " and " + std::to_string(spec.max);
  for (const ParamWord& word : spec.words) {
    allowed += ", or ";
    allowed += word.word;
  }
  return allowed + (spec.unit == TimeUnit::kNone ? "" : "; ms, s or min may follow");
}

/// The rule that a number breaks, or nothing: "must be between 0 and 7". It follows "but".
[[nodiscard]] inline std::string broken_rule(const ParamSpec& spec, std::int64_t value) {
  if (value > kNoLimit) {
    return "must be at most " + std::to_string(std::min(spec.max, kNoLimit));
  }
  if (spec.why_hole != nullptr && value == spec.hole) {
    return spec.why_hole;
  }
  return value >= spec.min && value <= spec.max ? "" : "must be " + allowed_values(spec);
}

/// What the user wrote for a number, as Open MPI reads it: decimal, hexadecimal after 0x or octal after 0, and k, m or g may follow.
/// Nothing if it is something else, of which Open MPI silently takes what it can, or 0.
[[nodiscard]] inline std::optional<std::int64_t> read_number(const char* text) {
  char* end = nullptr;
  errno = 0;
  std::int64_t value = std::strtoll(text, &end, 0);
  if (end == text || errno != 0) {
    return std::nullopt;
  }
  constexpr std::string_view kUnits = "kmg";
  if (const std::size_t unit = kUnits.find(static_cast<char>(*end | 0x20));
      *end != 0 && unit != std::string_view::npos) {
    if (__builtin_mul_overflow(value, std::int64_t{1} << 10 * (unit + 1), &value)) {
      return std::nullopt;
    }
    ++end;
  }
  const std::string_view rest = end;
  return rest.find_first_not_of(" \t\n") == std::string_view::npos ? std::optional(value) : std::nullopt;
}

/// What the user wrote for a time, in its unit: "500ms", "10s", "2min".
[[nodiscard]] inline std::optional<std::int64_t> read_time(TimeUnit unit, const std::string& text) {
  struct Suffix {
    std::string_view name;
    std::int64_t milliseconds;
  };
  for (const auto& [name, milliseconds] : {Suffix{"ms", 1}, Suffix{"s", 1000}, Suffix{"min", 60000}}) {
    const std::size_t digits = text.find_last_of("0123456789") + 1;
    if (text.compare(digits, std::string::npos, name) != 0) {
      continue;
    }
    const std::optional<std::int64_t> number = read_number(text.substr(0, digits).c_str());
    const std::int64_t one = unit == TimeUnit::kSeconds ? 1000 : 1;
    std::int64_t total = 0;
    if (!number || __builtin_mul_overflow(*number, milliseconds, &total) || total % one != 0) {
      return std::nullopt;
    }
    return total / one;
  }
  return std::nullopt;
}

/// What the user wrote for a parameter that is a number. Nothing if it is none, and no word of it either.
[[nodiscard]] inline std::optional<std::int64_t> read_value(const ParamSpec& spec, const char* text) {
  for (const auto& [word, number] : spec.words) {
    if (word == text) {
      return number;
    }
  }
  if (spec.unit != TimeUnit::kNone) {
    if (const auto time = read_time(spec.unit, text); time) {
      return time;
    }
    // Not 2^20 seconds for who has meant a minute.
    if (std::string_view(text).find_first_of("kKmMgG") != std::string_view::npos) {
      return std::nullopt;
    }
  }
  return read_number(text);
}

}  // namespace fabric
