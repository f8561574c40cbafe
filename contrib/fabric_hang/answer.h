// SPDX-License-Identifier: BSD-3-Clause
//
// What others say, who may be anybody: any process can take questions, and whoever writes a file can write anything.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace fabric::hang {

/// Of an answer. More is none: 10,000 peers take some megabytes.
inline constexpr std::size_t kMostBytes = std::size_t{1} << 26;

/// An object of which every text is safe to print, and every value that fabric_hang looks at is of its kind. Null if `line` is none.
[[nodiscard]] nlohmann::ordered_json read_answer(const std::string& line);

/// Makes the texts of it safe to print. What is nested deeper than any answer becomes null.
void make_printable(nlohmann::ordered_json& json, unsigned depth = 0);

}  // namespace fabric::hang
