// SPDX-License-Identifier: BSD-3-Clause
//
// What a connection has to know of a port, as far as the scan of ports tells it.
#pragma once

#include <cstdint>

#include "common/ports/port_scan.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// `index`: the port's place in this process's list. Queues, completion queues and what is made for them are the caller's to fill in.
/// `port` and its device outlive the context.
[[nodiscard]] PortContext context_of(const UsablePort& port, std::uint16_t index);

}  // namespace fabric::cpc
