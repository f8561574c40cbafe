// SPDX-License-Identifier: BSD-3-Clause
//
// What the processes of a job find out together.
#pragma once

#include <cstdint>
#include <vector>

#include "contrib/fabric_doctor/job/job.h"
#include "contrib/fabric_doctor/job/pair_result.h"
#include "contrib/fabric_doctor/report.h"

namespace fabric::doctor {

struct JobReport {
  std::vector<Section> sections;  ///< one for each host, and one for the job
  std::vector<PairResult> pairs;  ///< as both sides of each have seen it
};

/// Every process of the job calls it; only rank 0 has the report then. Each tries at most `rounds` partners.
[[nodiscard]] JobReport examine_job(Job& job, std::uint32_t rounds);

}  // namespace fabric::doctor
