// SPDX-License-Identifier: BSD-3-Clause
//
// How many TCP connections this process has opened to set up connections with its peers.
#pragma once

#include <atomic>
#include <cstdint>

namespace fabric::cpc {

/// Of the process, oob and xoob. Written by the progress thread, read by any.
inline std::atomic<std::uint64_t> tcp_connections_opened{0};

}  // namespace fabric::cpc
