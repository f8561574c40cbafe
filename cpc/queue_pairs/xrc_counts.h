// SPDX-License-Identifier: BSD-3-Clause
//
// How many queue pairs that receive for the processes of a node this process has made, and how many of those that others
// have made it has opened.
#pragma once

#include <atomic>
#include <cstdint>

namespace fabric::cpc {

/// Of the process, all ports. Written by the progress thread, read by any.
inline std::atomic<std::uint64_t> xrc_targets_made{0};
inline std::atomic<std::uint64_t> xrc_targets_opened{0};

}  // namespace fabric::cpc
