// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events of devices: read, acknowledged at once, and passed on as values.
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <memory>
#include <unordered_map>

#include "common/base/result.h"
#include "cpc/loop/event_loop.h"

namespace fabric::cpc {

/// An asynchronous event of a device, already acknowledged. man ibv_get_async_event.
struct AsyncEvent {
  ibv_context* device = nullptr;
  ibv_event_type type{};
  int port_num = 0;              ///< of port events
  std::uint32_t qp_num = 0;      ///< of events of a queue pair, which may be gone
  const void* object = nullptr;  ///< the ibv_srq or ibv_cq concerned: compare only, it may be gone
};

/// Progress thread only.
class AsyncEvents {
 public:
  using OnEvent = std::function<void(const AsyncEvent&)>;

  AsyncEvents(event_base* loop, OnEvent on_event) : loop_(loop), on_event_(std::move(on_event)) {}

  /// Reports the events of `device` from now on; once is enough. Makes reading them non-blocking, for everybody. Null
  /// has no events.
  void add(ibv_context* device);

 private:
  void on_readable(ibv_context* device);

  event_base* loop_;
  OnEvent on_event_;
  std::unordered_map<ibv_context*, std::unique_ptr<Watch>> watches_;
};

}  // namespace fabric::cpc
