// SPDX-License-Identifier: BSD-3-Clause
//
// Who a process is, and the secret that a peer must know to talk to it.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace fabric {

/// The name that the runtime gave a process: its job and its rank in that job.
struct ProcessName {
  std::uint32_t job = 0;
  std::uint32_t rank = 0;
  auto operator<=>(const ProcessName&) const = default;
};

/// For texts: "rank 2 of job 7".
[[nodiscard]] inline std::string to_string(const ProcessName& process) {
  return "rank " + std::to_string(process.rank) + " of job " + std::to_string(process.job);
}

/// 16 random bytes that a process publishes in its modex, which only its job (and jobs that MPI connects to it) can
/// read. Who can sign a message with them (cpc/core/message_key.h) belongs to us; port scanners and other jobs do not.
using JobToken = std::array<std::byte, 16>;

}  // namespace fabric

template <>
struct std::hash<fabric::ProcessName> {
  std::size_t operator()(const fabric::ProcessName& name) const noexcept {
    return std::hash<std::uint64_t>{}((std::uint64_t{name.job} << 32) | name.rank);
  }
};
