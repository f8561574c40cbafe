// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What somebody may have meant by a word that is none of those that there are: for messages about options, rules and commands.
#include <string>
#include <string_view>
#include <vector>

namespace softhca {

// The word of the list that needs the fewest letters changed, swapped, added or left out, if so few that it may be meant; else
// empty. Case does not count, nor whether words are joined by '-' or '_'.
std::string_view nearest(std::string_view wrong, const std::vector<std::string_view>& words);

// What to put behind a complaint: `; did you mean "ports"?`, or, where nothing is near, `; there are devices, ports, ...`.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& words);

// In quotation marks.
std::string quoted(std::string_view text);

}  // namespace softhca
