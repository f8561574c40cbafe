// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_doctor prints: a line for each finding, or JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "contrib/fabric_doctor/finding.h"

namespace fabric::doctor {

struct CheckResult {
  std::string check;  ///< its name
  Findings findings;
};

/// What belongs together: the checks of a host, or of the job.
struct Section {
  std::string title;  ///< "host node1"; empty: no heading
  std::vector<CheckResult> results;
};

[[nodiscard]] Level worst(const std::vector<Section>& report) noexcept;

/// "ok", "WARN" or "FAIL".
[[nodiscard]] const char* word_of(Level level) noexcept;

/// With a sentence at the end that says what it comes to.
[[nodiscard]] std::string as_text(const std::vector<Section>& report);

/// {"verdict", "sections": [{"title", "findings": [{"check", "status", "what", "remedy"}]}]}
[[nodiscard]] nlohmann::ordered_json as_json(const std::vector<Section>& report);

/// A section as it travels to the process that prints.
void to_json(nlohmann::ordered_json& json, const Section& section);
void from_json(const nlohmann::ordered_json& json, Section& section);

}  // namespace fabric::doctor
