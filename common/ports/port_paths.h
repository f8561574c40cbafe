// SPDX-License-Identifier: BSD-3-Clause
//
// Several paths from one port: each with queue pairs of its own, so that switches and bonded links (LAG) that send every
// connection one way send them different ways.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ports/port_scan.h"

namespace fabric {

/// Each port `paths` times (1 to kMaxPaths), one after the other: fewer if a process would have more than kMaxPorts. They share the
/// port's bandwidth. On an InfiniBand port that has several LIDs (LMC) each path has the next one, as source and as destination.
[[nodiscard]] std::vector<UsablePort> with_paths(const std::vector<UsablePort>& ports, unsigned paths);

/// The IPv6 flow label of a path's packets, 20 bits. On RoCE v2 adapters take their UDP source port from it, by which routers and
/// bonds choose; those of a port's paths are consecutive. 0, for the adapter to choose by queue pair, if there is one path.
/// `process`: any number that differs among the processes of a host.
[[nodiscard]] std::uint32_t flow_label(std::uint32_t process, unsigned paths, unsigned path) noexcept;

}  // namespace fabric
