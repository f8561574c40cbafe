// SPDX-License-Identifier: BSD-3-Clause
//
// What processes show, and what their adapters have counted, as one JSON document. fabric_top(1) has its names.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/top_file.h"
#include "contrib/fabric_top/nic_counters.h"

namespace fabric::top {

/// A process, and what the kernel knows of it.
struct Shown {
  FoundPage page;
  char state = '?';  ///< of its main thread, as in proc(5)
};

/// What a process that does not come back to MPI for so long did there is no rate any more.
inline constexpr std::uint64_t kStale = 3 * kPeriod;

using Nics = std::map<NicName, NicLook>;

/// The ports that the processes use.
[[nodiscard]] Nics look_at_nics(const std::vector<Shown>& processes, const std::string& sysfs = kSysfs);

/// `now_ns`: of CLOCK_MONOTONIC. `before`: the look before, for rates.
[[nodiscard]] nlohmann::ordered_json view_of(const std::vector<Shown>& processes, const Nics& nics, const Nics& before,
                                             std::uint64_t now_ns);

}  // namespace fabric::top
