// SPDX-License-Identifier: BSD-3-Clause
//
// The receive_queues parameter: which receive queues an endpoint has (BSRQ, "buckets of shared receive queues").
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace fabric {

/// Kinds of receive queue; the value is the letter that selects it.
enum class QueueKind : char {
  kPerPeer = 'P',  ///< every peer has its own receive buffers, guarded by credits
  kShared = 'S',   ///< all peers of a port share the buffers (SRQ)
  kXrc = 'X',      ///< shared, and the queue pair is shared by the processes of a node
};

/// One queue of the list. Counts are of receive buffers unless said otherwise.
struct QueueSpec {
  QueueKind kind = QueueKind::kPerPeer;
  std::uint32_t size = 0;    ///< largest message, bytes, PML headers included
  std::uint32_t rd_num = 0;  ///< receives posted when full
  std::uint32_t rd_low = 0;  ///< repost when no more than this many are left
  // P only
  std::uint32_t rd_win = 0;  ///< send an explicit credit message when this many credits are owed
  std::uint32_t rd_rsv = 0;  ///< further receives kept for explicit credit messages
  // S and X only
  std::uint32_t sd_max = 0;  ///< most sends under way to one peer
  // All
  std::uint32_t rd_init = 0;  ///< receives posted at first; of a P queue rd_rsv more
  // S and X only
  std::uint32_t srq_limit = 0;  ///< ask for an event, and post more, when fewer than this are left

  /// Most messages under way on a queue pair of this queue, credit messages included.
  [[nodiscard]] constexpr std::uint32_t send_depth() const noexcept {
    return kind == QueueKind::kPerPeer ? rd_num + rd_rsv : sd_max;
  }
  /// Receives posted on the queue pair itself, when full.
  [[nodiscard]] constexpr std::uint32_t receive_depth() const noexcept {
    return kind == QueueKind::kPerPeer ? rd_num + rd_rsv : 0;
  }
  /// Those of them that are posted only if the peer runs out of credits.
  [[nodiscard]] constexpr std::uint32_t receives_later() const noexcept {
    return kind == QueueKind::kPerPeer ? rd_num - rd_init : 0;
  }

  bool operator==(const QueueSpec&) const = default;
};

/// `count` receives of a queue of `most`, in proportion to one of `now`. Rounds down.
[[nodiscard]] constexpr std::uint32_t in_proportion(std::uint32_t count, std::uint32_t now,
                                                    std::uint32_t most) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{count} * now / most);
}

/// Most queues in a list: what the queue field of the wire formats holds.
inline constexpr std::size_t kMaxQueues = 16;

/// A parsed, checked list.
class ReceiveQueues {
 public:
  /// Parses `Q[:Q...]`, Q = `P,size,rd_num[,rd_low[,rd_win[,rd_rsv[,rd_init]]]]` or
  /// `S|X,size,rd_num[,rd_low[,sd_max[,rd_init[,srq_limit]]]]`.
  /// An error shows the string with a caret under the offending field and states the rule that it breaks.
  [[nodiscard]] static Result<ReceiveQueues> parse(std::string_view text);

  /// The list as it is run where senders do not wait for receives ("receiver not ready" is unknown on iWARP, and a message
  /// without a receive ends the connection): an S queue becomes a P queue of sd_max receives (at most rd_num) for every peer, of which it begins with a few.
  [[nodiscard]] ReceiveQueues without_shared() const;

  /// The list with one queue changed in what concerns this process alone. The caller has checked the numbers.
  [[nodiscard]] ReceiveQueues with(std::size_t index, const QueueSpec& spec) const {
    ReceiveQueues changed = *this;
    changed.queues_[index] = spec;
    return changed;
  }

  /// The list of the queues at `indices` alone.
  [[nodiscard]] ReceiveQueues only(std::span<const std::uint8_t> indices) const {
    ReceiveQueues some;
    for (const std::uint8_t index : indices) {
      some.queues_.push_back(queues_[index]);
    }
    return some;
  }

  [[nodiscard]] const std::vector<QueueSpec>& queues() const noexcept { return queues_; }
  [[nodiscard]] std::size_t count() const noexcept { return queues_.size(); }
  [[nodiscard]] const QueueSpec& operator[](std::size_t index) const { return queues_[index]; }

  /// All queues of `a`, and those of `b` behind them.
  [[nodiscard]] static ReceiveQueues joined(const ReceiveQueues& a, const ReceiveQueues& b) {
    ReceiveQueues both = a;
    both.queues_.insert(both.queues_.end(), b.queues_.begin(), b.queues_.end());
    return both;
  }

  /// Has X queues. In a list that a user can give all are, or none; in one that is chosen X queues come last
  /// (queue_choice.h).
  [[nodiscard]] bool has_xrc() const noexcept { return !queues_.empty() && queues_.back().kind == QueueKind::kXrc; }
  /// Has P or S queues.
  [[nodiscard]] bool has_others() const noexcept { return !queues_.empty() && queues_.front().kind != QueueKind::kXrc; }
  /// How many of its queues are X queues.
  [[nodiscard]] std::size_t xrc_count() const noexcept {
    return static_cast<std::size_t>(std::count_if(queues_.begin(), queues_.end(),
                                                  [](const QueueSpec& spec) { return spec.kind == QueueKind::kXrc; }));
  }

  /// The list with every field spelled out. Two processes can talk exactly if these are equal.
  [[nodiscard]] std::string canonical() const;

  /// Size of the largest message that any queue takes, bytes.
  [[nodiscard]] std::uint32_t largest() const noexcept;

  /// The queue with the smallest buffers that hold `size` bytes; of equal ones the first. count() if none does.
  [[nodiscard]] std::size_t smallest_fitting(std::size_t size) const noexcept;

 private:
  std::vector<QueueSpec> queues_;
};

}  // namespace fabric
