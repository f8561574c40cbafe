// SPDX-License-Identifier: BSD-3-Clause
//
// The send queue of X queues: one queue pair to a port of a node, for everything that this process sends to any process
// there. Whoever finds no room waits in line, and room that comes free goes to those in line, one message to each in
// turn: an endpoint all of whose own sends are done is still woken, by the completions of others.
#pragma once

#include <cstdint>
#include <deque>

#include "btl_fabric/path/send_queue.h"
#include "btl_fabric/peer/endpoint_rdma.h"

namespace fabric {

class Endpoint;
class SharedSendQueue;

/// An endpoint's part in a shared send queue. Requests that complete without a fragment point here; so it stays when
/// the endpoint goes.
struct SendShare {
  SharedSendQueue& sends;
  Endpoint* endpoint;  ///< null when it is gone
};

/// Lives as long as its module: its queue pair's last completions may come after everyone has left. Belongs to whoever
/// holds the context's lock.
class SharedSendQueue : public SendQueue {
 public:
  SharedSendQueue(ibv_qp* queue_pair, const QueueSpace& space, Module& module);
  SharedSendQueue(const SharedSendQueue&) = delete;
  SharedSendQueue& operator=(const SharedSendQueue&) = delete;

  /// A share for `endpoint`, valid as long as this.
  [[nodiscard]] SendShare& add(Endpoint& endpoint) { return shares_.emplace_back(SendShare{*this, &endpoint}); }
  [[nodiscard]] const std::deque<SendShare>& shares() const noexcept { return shares_; }

  /// What posts RDMA; the bounds are those of the queue pair, whoever the peer.
  [[nodiscard]] RdmaChannel& rdma() noexcept { return rdma_; }

  // Messages: `queue` waits, or waits no more (its endpoint is closed)
  void line_up(EndpointQueue& queue) noexcept;
  void leave(EndpointQueue& queue) noexcept;
  // The same for RDMA
  void line_up(EndpointRdma& rdma) noexcept;
  void leave(EndpointRdma& rdma) noexcept;

  /// Somebody is in line: newcomers stand behind.
  [[nodiscard]] bool has_line() const noexcept { return first_in_line != nullptr || first_rdma_ != nullptr; }
  /// Gives room to those in line, messages and RDMA in turn.
  void serve() noexcept;

  /// The queue pair has failed: nothing is sent any more.
  void fail() noexcept { failed_ = true; }
  [[nodiscard]] bool has_failed() const noexcept { return failed_; }

 private:
  bool serve_message() noexcept;
  bool serve_rdma() noexcept;

  RdmaChannel rdma_;
  std::deque<SendShare> shares_;  ///< a deque, because requests point at them
  EndpointQueue* last_in_line_ = nullptr;
  EndpointRdma* first_rdma_ = nullptr;
  EndpointRdma* last_rdma_ = nullptr;
  bool failed_ = false;
};

}  // namespace fabric
