// SPDX-License-Identifier: BSD-3-Clause
//
// What has been found out, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fabric::hang {

/// `processes`: what they have told; `findings`: analyse() of it.
[[nodiscard]] std::string as_text(const nlohmann::ordered_json& processes, const nlohmann::ordered_json& findings);

}  // namespace fabric::hang
