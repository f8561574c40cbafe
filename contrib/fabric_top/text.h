// SPDX-License-Identifier: BSD-3-Clause
//
// A view (view.h) as tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fabric::top {

/// The place that there is. Lines are cut, and tables end with how many lines there are more.
struct Place {
  std::size_t lines = SIZE_MAX;
  std::size_t columns = SIZE_MAX;
};

/// Tables of processes, of their peers and of adapters, those first that do most.
[[nodiscard]] std::string as_text(const nlohmann::ordered_json& view, const Place& place);

/// "87", "12.3k", "4.0G"; units of 1000.
[[nodiscard]] std::string short_number(std::uint64_t value);

}  // namespace fabric::top
