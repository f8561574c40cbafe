// SPDX-License-Identifier: BSD-3-Clause
//
// How many connections were refused because whoever asked for them was not of this job, or made no sense.
#pragma once

#include <atomic>
#include <cstdint>

namespace fabric::cpc {

/// Of the process, by all CPCs. Written by the progress thread, read by any.
inline std::atomic<std::uint64_t> unknown_peers_refused{0};

}  // namespace fabric::cpc
