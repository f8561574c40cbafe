// SPDX-License-Identifier: BSD-3-Clause
//
// The send side of a queue pair: its room, and who waits for it. A link's P and S queues have one each. X queues
// send through the queue pair to the peer's node (cpc::XrcPath), which the links to all processes there share; what only
// that one needs is in shared_send_queue.h.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/accounting/queue_credits.h"

namespace fabric {

struct LinkQueue;

/// The carried bytes of batches of sends whose completions are to come, oldest first.
class BatchRing {
 public:
  explicit BatchRing(std::size_t most) : bytes_(most) {}
  void push(std::uint64_t carried) noexcept { bytes_[(first_ + count_++) % bytes_.size()] = carried; }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::uint64_t pop() noexcept {
    const std::uint64_t oldest = bytes_[first_];
    first_ = (first_ + 1) % bytes_.size();
    --count_;
    return oldest;
  }

 private:
  std::vector<std::uint64_t> bytes_;  ///< as many as ever fit the send queue
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Belongs to whoever holds the context's lock.
struct SendQueue {
  /// `space`: of the queue pair, without the entries that are kept for markers.
  explicit SendQueue(const QueueSpace& space)
      : tx(space),
        signal_batch(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tx.size_left() / 4, 1, 64))),
        batches(space.entries() / signal_batch + 2) {}

  ibv_qp* qp = nullptr;          ///< the connection owns it
  TxCredits tx;                  ///< room in the send queue, as far as completions have told
  std::uint32_t unsignaled = 0;  ///< operations posted since the last signalled one
  const std::uint32_t signal_batch;
  BatchRing batches;
  /// Of a shared one: whose turn it is when there is room. Others do not overtake.
  LinkQueue* first_waiting = nullptr;

  [[nodiscard]] bool has_room() const noexcept { return tx.has_room() && first_waiting == nullptr; }
};

}  // namespace fabric
