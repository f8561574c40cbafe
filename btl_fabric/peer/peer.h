// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "common/base/identity.h"
#include "common/ports/process_info.h"

namespace fabric {

/// What we know of another process, from its modex.
struct Peer {
  ProcessInfo info;
  std::vector<std::optional<std::uint16_t>> pairs;  ///< for each port of ours, the peer's port that it talks to
  /// The queues of connections with it: which of PortContext::subsets. Where a port is connected by X queues: the first.
  std::uint8_t subset = 0;
  std::string refusal;  ///< why it cannot be talked to at all, if so
};

[[nodiscard]] inline ProcessName name_of(const opal_process_name_t& name) noexcept {
  return {name.jobid, name.vpid};
}
[[nodiscard]] inline ProcessName name_of(const opal_proc_t& proc) noexcept {
  return name_of(proc.proc_name);
}

}  // namespace fabric
