// SPDX-License-Identifier: BSD-3-Clause
//
// Asks processes of this host what they wait for, all at once and twice: two looks tell what moves.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <span>

#include "contrib/fabric_hang/processes.h"

namespace fabric::hang {

struct Patience {
  std::chrono::milliseconds answer{2000};  ///< for a process to answer
  std::chrono::milliseconds apart{1000};   ///< between the two looks
};

/// An array with an element for each process: its first line, with "answer", its second; "is_moving", whether anything has
/// come or gone between the looks; and without an answer "silent", why. fabric_hang(1) has all names.
[[nodiscard]] nlohmann::ordered_json gather(std::span<const Process> processes, const Patience& patience);

}  // namespace fabric::hang
