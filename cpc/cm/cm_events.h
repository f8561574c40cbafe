// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of librdmacm's events in the progress thread's loop: each event goes to the handler that its id's context points to.
#pragma once

#include <memory>

#include "common/base/result.h"
#include "cpc/cm/cm_ids.h"
#include "cpc/loop/event_loop.h"

namespace fabric::cpc {

/// Progress thread only. Outlives the ids.
class CmEvents {
 public:
  /// Opens the channel. The error says why this host has no communication manager.
  [[nodiscard]] Status open(event_base* loop);
  void close() noexcept {
    watch_.reset();
    channel_.reset();
  }
  /// Null while it is not open.
  [[nodiscard]] rdma_event_channel* channel() const noexcept { return channel_.get(); }

 private:
  void on_readable();

  CmEventChannel channel_;
  std::unique_ptr<Watch> watch_;  ///< after channel_, to be gone before that is closed
};

}  // namespace fabric::cpc
