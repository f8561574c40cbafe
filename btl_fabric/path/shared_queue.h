// SPDX-License-Identifier: BSD-3-Clause
//
// A shared receive queue of a port (the S and X kinds of receive_queues) and its buffers.
#pragma once

#include <cstdint>
#include <memory>

#include "btl_fabric/path/receive_buffers.h"
#include "common/accounting/completion_queue_set.h"
#include "common/accounting/receive_queues.h"
#include "common/base/result.h"
#include "common/base/verbs_handle.h"
#include "common/ports/port_scan.h"
#include "common/ports/xrc_domain.h"

namespace fabric {

/// Starts with rd_init buffers. When the device reports that fewer than srq_limit are left, the number kept posted
/// doubles, up to rd_num: memory is used only where messages really come in faster than they are taken. Belongs to
/// whoever holds the context's lock.
class SharedQueue {
 public:
  /// `costs`: of the device's queues.
  [[nodiscard]] static Result<std::unique_ptr<SharedQueue>> make(const OpenDevice& device, const QueueSpec& spec,
                                                                 const DeviceCosts& costs, FragmentPool& pool);
  /// An X queue: peers name it by its number, and what they send completes on the queue that `room` is of.
  [[nodiscard]] static Result<std::unique_ptr<SharedQueue>> make_xrc(const OpenDevice& device, const QueueSpec& spec,
                                                                     const DeviceCosts& costs, FragmentPool& pool,
                                                                     const XrcDomain& domain, CompletionQueueRoom room);

  [[nodiscard]] ibv_srq* srq() const noexcept { return srq_.get(); }

  /// Posts the first buffers, once. The error says why not even one could be posted.
  [[nodiscard]] Status start();

  /// A post has said so.
  [[nodiscard]] bool device_is_gone() const noexcept { return device_is_gone_; }

  /// A receive completed: its buffer is in use until give_back().
  void completed(const Fragment* fragment) noexcept { receives_.completed(fragment); }
  /// Posts again below the low watermark. False if buffers ran out: refill() later.
  [[nodiscard]] bool give_back(Fragment* fragment) noexcept {
    receives_.give_back(fragment);
    return receives_.posted() > low_ || refill();
  }

  /// Posts up to the target. False if buffers ran out.
  bool refill() noexcept;

  /// The device says that fewer than srq_limit receives are left.
  void limit_reached() noexcept;

  [[nodiscard]] std::uint32_t target() const noexcept { return target_; }
  [[nodiscard]] std::uint32_t posted() const noexcept { return receives_.posted(); }
  /// Receives that can be posted now. For all threads.
  [[nodiscard]] std::uint64_t rx_size_left_seen() const noexcept { return receives_.rx_size_left_seen(); }

 private:
  SharedQueue(SharedReceiveQueue srq, const QueueSpec& spec, const DeviceCosts& costs,
              FragmentPool& pool) noexcept(!kHasLedger);
  void set_target(std::uint32_t target) noexcept;
  void arm_limit_event() noexcept;

  QueueSpec spec_;
  ReceiveBuffers receives_;
  CompletionQueueRoom room_;  ///< of an X queue
  SharedReceiveQueue srq_;    ///< goes before the buffers that are posted on it
  std::uint32_t target_ = 0;  ///< receives kept posted
  std::uint32_t low_ = 0;     ///< refill when no more than this many are left
  bool started_ = false;
  bool device_is_gone_ = false;
};

}  // namespace fabric
