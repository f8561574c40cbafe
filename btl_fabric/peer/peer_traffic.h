// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI has given to be sent to a peer, for contrib/fabric_top. There is one only where btl_fabric_top is set
// (btl_fabric/mca/traffic_counts.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "btl_fabric/base/opal.h"
#include "common/base/top_page.h"

namespace fabric {

/// A number that any thread adds to, without a lock.
class TrafficCount {
 public:
  void add(std::uint64_t more) noexcept {
    if (opal_uses_threads) {
      sum_.fetch_add(more, std::memory_order_relaxed);
    } else {
      sum_.store(sum_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::uint64_t get() const noexcept { return sum_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> sum_ = 0;
};

/// Of an endpoint that Open MPI knows.
struct PeerTraffic {
  // For all threads
  TrafficCount messages;
  TrafficCount message_bytes;
  TrafficCount puts;
  TrafficCount put_bytes;
  TrafficCount gets;
  TrafficCount get_bytes;
  TrafficCount atomics;

  // For whoever holds the lock of the endpoint's context
  std::uint64_t packets_received = 0;  ///< by the last look
  std::uint32_t taken = 0;             ///< at the last look, by a count that goes round
  std::uint32_t heals = 0;
  std::uint64_t packets_resent = 0;
  top::Flow before;  ///< at the last look

  /// What Open MPI has given.
  void add_calls_to(top::Flow& flow) const noexcept {
    flow.messages_sent += messages.get();
    flow.bytes_sent += message_bytes.get();
    flow.puts += puts.get();
    flow.put_bytes += put_bytes.get();
    flow.gets += gets.get();
    flow.get_bytes += get_bytes.get();
    flow.atomics += atomics.get();
  }
};

}  // namespace fabric
