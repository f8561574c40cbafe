// SPDX-License-Identifier: BSD-3-Clause
//
// Tells the jobs apart whose processes have been asked.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace fabric::hang {

/// The processes of gather(), an array for each set of jobs that know each other (MPI_Comm_spawn makes such), the largest first.
/// A process of which no job is known, since it does not answer, goes to those that know its rank; it gets their number then. One that
/// is there twice counts once.
[[nodiscard]] std::vector<nlohmann::ordered_json> by_job(const nlohmann::ordered_json& told);

}  // namespace fabric::hang
