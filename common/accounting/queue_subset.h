// SPDX-License-Identifier: BSD-3-Clause
//
// The queues of a list that one connection has: all of them, or fewer, if the peer runs with fewer (queue_choice.h).
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <vector>

#include "common/accounting/receive_queues.h"

namespace fabric {

/// Some of the queues of a list, in its order. Immutable. A queue has an *index* in the list, and a *place* among those
/// that the connection has.
class QueueSubset {
 public:
  /// All queues of `list`.
  [[nodiscard]] static QueueSubset all(const ReceiveQueues& list);
  /// The queues of `list` at `indices`, which are not empty and ascend.
  QueueSubset(const ReceiveQueues& list, std::vector<std::uint8_t> indices);

  /// Those of the connection, by place.
  [[nodiscard]] const ReceiveQueues& queues() const noexcept { return queues_; }
  [[nodiscard]] std::size_t count() const noexcept { return queues_.count(); }
  [[nodiscard]] std::size_t index(std::size_t place) const noexcept { return indices_[place]; }
  /// The largest message, bytes.
  [[nodiscard]] std::uint32_t largest() const noexcept { return largest_; }
  /// The place of the queue that takes messages of queue `index` of the list: that one, or the smallest that is as large. If
  /// the connection has none that is as large, its largest.
  [[nodiscard]] std::size_t place(std::size_t index) const noexcept {
    assert(index < kMaxQueues);
    return places_[index];
  }

 private:
  ReceiveQueues queues_;
  std::vector<std::uint8_t> indices_;
  std::array<std::uint8_t, kMaxQueues> places_{};
  std::uint32_t largest_;
};

}  // namespace fabric
