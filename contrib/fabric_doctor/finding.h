// SPDX-License-Identifier: BSD-3-Clause
//
// What a check has found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fabric::doctor {

/// How bad it is; the worst comes last.
enum class Level : std::uint8_t {
  kOk,
  kWarn,  ///< MPI runs over the fabric BTL, but slower, or not in every case
  kFail,  ///< it does not
};

/// One line of the report, and what to do about it.
struct Finding {
  Level level = Level::kOk;
  std::string what;    ///< without a full stop, in one line
  std::string remedy;  ///< what the user can do; empty if all is well
};

using Findings = std::vector<Finding>;

[[nodiscard]] inline Finding ok(std::string what) {
  return {Level::kOk, std::move(what), {}};
}
[[nodiscard]] inline Finding warn(std::string what, std::string remedy) {
  return {Level::kWarn, std::move(what), std::move(remedy)};
}
[[nodiscard]] inline Finding fail(std::string what, std::string remedy) {
  return {Level::kFail, std::move(what), std::move(remedy)};
}

[[nodiscard]] inline Level worst(const Findings& findings) noexcept {
  Level level = Level::kOk;
  for (const Finding& one : findings) {
    level = std::max(level, one.level);
  }
  return level;
}

}  // namespace fabric::doctor
