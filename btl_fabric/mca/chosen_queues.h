// SPDX-License-Identifier: BSD-3-Clause
//
// The receive queues of this process: the list that the user has given, or a choice (cpc/queue_pairs/queue_choice.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/accounting/queue_subset.h"
#include "common/accounting/receive_queues.h"
#include "common/base/result.h"
#include "common/ports/port_scan.h"
#include "common/ports/process_info.h"
#include "common/ports/protocol_limits.h"
#include "cpc/queue_pairs/queue_choice.h"

namespace fabric {

class ChosenQueues {
 public:
  /// Reads btl_fabric_receive_queues. If it is to be chosen, the list has all queues until choose().
  [[nodiscard]] static Result<ChosenQueues> read();

  /// Whether the user allows the method that connects X queues: not at all, beside others, or alone.
  enum class Xrc { kNever, kToo, kOnly };
  /// Chooses, where that is asked for, by what all ports have room for, and tells the user. Once, before on() and subsets().
  void choose(std::span<const UsablePort> ports, const LimitWishes& wishes, Xrc xrc);

  [[nodiscard]] const ReceiveQueues& list() const noexcept { return list_; }
  /// What the choice has followed, or that there was none.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// What the modex says: kListGiven if it was not chosen.
  [[nodiscard]] std::uint8_t level() const noexcept { return level_; }

  /// Queue pairs of connections by P and S queues that a module of the port may have: of this process's part of the device, and as many as
  /// btl_fabric_max_queue_pairs and btl_fabric_memory_budget allow. After choose().
  [[nodiscard]] std::int64_t queue_pairs(const UsablePort& port) const;
  /// As a module of the port runs it: with shared receives as far as btl_fabric_memory_budget allows.
  [[nodiscard]] ReceiveQueues on(const UsablePort& port) const;
  /// What connections may have of `run`, which is on(), perhaps with other counts.
  [[nodiscard]] std::vector<QueueSubset> subsets(const ReceiveQueues& run) const;
  /// Which of those a connection, not by X queues, with a peer has that runs with the list `theirs` of level `their_level`. The error: none.
  [[nodiscard]] Result<std::uint8_t> subset_with(const std::string& theirs, std::uint8_t their_level) const;

 private:
  [[nodiscard]] std::int64_t share(const UsablePort& port) const;
  [[nodiscard]] cpc::QueueRoom room(const UsablePort& port) const;

  ReceiveQueues list_;
  std::string why_;
  std::uint8_t level_ = kListGiven;
  std::map<const OpenDevice*, std::int64_t> modules_;  ///< of the process, by device
  std::uint64_t memory_ = 0;                           ///< for a module; 0: no limit
  std::uint32_t longest_ = 0;                          ///< messages of so many bytes must have a queue
};

}  // namespace fabric
