// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_tune prints and writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "contrib/fabric_tune/tuner.h"

namespace fabric::tune {

/// How a result is told.
struct Wording {
  std::string command;  ///< of the program
  GainWords gain;
  bool is_time = true;  ///< figures are seconds
};

/// What the program has done as it is, and what stays as the user has set it.
[[nodiscard]] std::string baseline_text(const Recorded& recorded);
[[nodiscard]] std::string as_text(const Tuning& tuning, const Wording& wording);
[[nodiscard]] nlohmann::ordered_json as_json(const Tuning& tuning, const std::string& command);

/// Proposals that nobody has tried.
[[nodiscard]] std::string as_text(const std::vector<Proposal>& proposals);
[[nodiscard]] nlohmann::ordered_json as_json(const std::vector<Proposal>& proposals);

/// For openmpi-mca-params.conf; `remarks` become comments above.
[[nodiscard]] std::string params_file(const Settings& settings, const std::vector<std::string>& remarks);
/// Never over a file of somebody else's: the error says so, or why it cannot be written.
[[nodiscard]] Status write_params_file(const std::string& path, const std::string& text);

}  // namespace fabric::tune
