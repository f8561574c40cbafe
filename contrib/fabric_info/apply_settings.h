// SPDX-License-Identifier: BSD-3-Clause
//
// What the parameters of the component that the user has set mean for a question.
#pragma once

#include <cstdint>
#include <optional>

#include "btl_fabric/base/param_table.h"
#include "common/base/result.h"
#include "contrib/fabric_info/report.h"
#include "contrib/fabric_info/settings.h"

namespace fabric::info {

/// All numbers of the table: as set, or the defaults. The error is of the first that breaks its rule, whether the question
/// depends on it or not, since the component would refuse it.
[[nodiscard]] Result<Params> numbers_of(const Settings& settings);

/// Puts what values mean into a question that has hosts and processes; the numbers are within their ranges. `memory`: that a process may
/// spend, bytes; 0: any. `limits`: that the user has set. The error is of costs or receive queues that cannot be read.
[[nodiscard]] Status apply_params(const Params& values, std::uint64_t memory, const LimitWishes& limits,
                                  Question& question);
/// The same of settings, which are checked. `memory`, if there, is stronger than btl_fabric_memory_budget.
[[nodiscard]] Status apply_settings(const Settings& settings, std::optional<std::uint64_t> memory, Question& question);

}  // namespace fabric::info
