// SPDX-License-Identifier: BSD-3-Clause
//
// What the report at the end of a job (btl_fabric_report) tells and no counter of MPI_T does: which queue it was that messages waited
// for, how long connections took, and by which method they came about.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "common/accounting/receive_queues.h"
#include "common/base/identity.h"

namespace fabric {

/// Messages that waited, of one receive queue, and times that it ran low.
struct QueueWaits {
  std::uint64_t for_credit = 0;
  std::uint64_t for_slot = 0;
  std::uint64_t for_buffer = 0;
  std::uint64_t ran_low = 0;  ///< a shared queue
  std::uint64_t grown = 0;    ///< a P queue
};

/// The connection that has taken longest to come about, from the first message to the peer or the first word of it.
struct SlowestSetUp {
  ProcessName peer;
  std::chrono::microseconds took{-1};  ///< negative: there was none
};

/// Of one transmit context, as Counters are.
struct JobTally {
  std::array<QueueWaits, kMaxQueues> queues{};            ///< by the index in receive_queues
  std::array<std::uint64_t, 32> connections_by_method{};  ///< by CpcKind
  SlowestSetUp slowest;

  /// A connection with `peer` has come about by the method of this number.
  void connected(const ProcessName& peer, unsigned method, std::chrono::microseconds took) noexcept {
    ++connections_by_method[method % connections_by_method.size()];
    if (took > slowest.took) {
      slowest = {peer, took};
    }
  }
};

}  // namespace fabric
