// SPDX-License-Identifier: BSD-3-Clause
//
// A planner of RDMA operations over a device that keeps to the rules.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "common/rdma/rdma_planner.h"
#include "test/unit/rdma_device.h"

namespace fabric::test {

/// A planner with its queue and pool, and a device below.
struct PlannerBench {
  explicit PlannerBench(const RdmaLimits& limits, std::uint32_t depth = 16, const DeviceCosts& costs = {},
                        const MrPoolHints& hints = {})
      : credits(
            QueueSpace::for_operations(depth, costs, std::max(limits.max_sge, limits.max_read_sge), limits.max_inline)),
        device(limits.link, credits.space().entries(), limits.max_sge, limits.max_read_sge, limits.max_message, 65536),
        pool(device, hints),
        planner(limits, credits, pool) {}

  TxCredits credits;
  RdmaDevice device;
  MrPool pool;
  RdmaPlanner planner;
};

inline RdmaOperation operation(RdmaKind kind, std::initializer_list<LocalMemory> local) {
  RdmaOperation result;
  result.kind = kind;
  for (const LocalMemory& piece : local) {
    result.local[result.pieces++] = piece;
  }
  result.remote_address = RdmaDevice::kRemoteBase;
  result.rkey = RdmaDevice::kRemoteKey;
  result.last_id = 1;
  result.part_id = 2;
  return result;
}

}  // namespace fabric::test
