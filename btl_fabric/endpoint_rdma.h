// SPDX-License-Identifier: BSD-3-Clause
//
// The reads, writes and atomics of an endpoint: those under way, and those that wait for the connection, for room or
// for memory regions, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "btl_fabric/endpoint_queue.h"
#include "btl_fabric/rdma_request.h"

namespace fabric {

class Module;
struct AtomicReply;

/// Belongs to whoever holds the BTL lock.
class EndpointRdma {
 public:
  EndpointRdma(Endpoint& endpoint, Module& module, EndpointQueue& queue);
  EndpointRdma(const EndpointRdma&) = delete;
  EndpointRdma& operator=(const EndpointRdma&) = delete;

  /// Starts a request, or queues it until it can go. OPAL_SUCCESS: its callback will be called. Otherwise the request
  /// is the caller's still: OPAL_ERR_OUT_OF_RESOURCE if too many wait, OPAL_ERR_UNREACH if the connection has failed,
  /// OPAL_ERR_NOT_AVAILABLE if it can never go.
  int submit(RdmaRequest* request) noexcept;

  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  /// Requests whose callbacks are to come.
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return in_flight_ + waiting_.count() + static_cast<std::uint32_t>(messages_under_way_);
  }

  /// The queue pair is up: learns what was negotiated, and starts what waits.
  void connected() noexcept;
  /// Starts what waits, as far as there is room.
  void send_waiting() noexcept;
  /// The device is done with a request.
  void completed(RdmaRequest* request, bool good) noexcept;
  /// The peer has executed an atomic that went as a message. False if no such atomic was sent.
  [[nodiscard]] bool replied(const AtomicReply& reply) noexcept;
  /// Ends everything that waits, and whatever waits for messages of the peer, with an error.
  void abort() noexcept;

 private:
  enum class Started { kYes, kLater, kNever, kFailed };
  [[nodiscard]] Started start(RdmaRequest* request) noexcept;
  [[nodiscard]] Started post(RdmaRequest* request) noexcept;
  [[nodiscard]] Started send_message(RdmaRequest* request) noexcept;
  void finish(RdmaRequest* request, int status) noexcept;

  Endpoint& endpoint_;
  Module& module_;
  EndpointQueue& queue_;
  RdmaPlanner planner_;
  RdmaRequestQueue waiting_;
  std::uint32_t in_flight_ = 0;         ///< posted to the device
  std::vector<RdmaRequest*> messages_;  ///< atomics that went as messages, by the place that their replies name
  std::size_t messages_under_way_ = 0;
  std::uint32_t next_serial_ = 1;
};

}  // namespace fabric
