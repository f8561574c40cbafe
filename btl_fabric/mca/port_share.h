// SPDX-License-Identifier: BSD-3-Clause
//
// This process's part of a port's device, and what receive queues fit into it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/accounting/context_locks.h"
#include "common/accounting/contexts.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/port_scan.h"
#include "common/ports/process_info.h"
#include "common/ports/protocol_limits.h"
#include "common/ports/xrc_domain.h"
#include "cpc/queue_pairs/queue_fit.h"

namespace fabric {

[[nodiscard]] cpc::QueuePairSettings queue_pair_settings(const UsablePort& port);

// In all that follows, `queues` are as the port runs them (ChosenQueues::on()).

/// Divides the device among the processes of this node, where every endpoint wants so many contexts.
[[nodiscard]] ResourceManager share_device(const UsablePort& port, const ReceiveQueues& queues,
                                           const EndpointAttributes& contexts);

/// What each context has.
[[nodiscard]] cpc::DeviceRoom room_of(const UsablePort& port, const ResourceManager& manager, std::int64_t contexts);

/// Contexts that every endpoint can have through a port, of those that are asked for (-1: as many as this process has
/// processors; `receive` 0: as many as transmit contexts).
[[nodiscard]] ContextRoles grant_contexts(const UsablePort& port, const ReceiveQueues& queues, int transmit,
                                          int receive);

/// The XRC domain that the processes of this job, and of the jobs that it spawns, on this host share on the port's device. The
/// error: there are no X queues.
[[nodiscard]] Result<XrcDomain> open_xrc_domain(const UsablePort& port);

/// Memory regions of a port's device that this process may have.
[[nodiscard]] Grant grant_memory_regions(const UsablePort& port, const ReceiveQueues& queues);

}  // namespace fabric
