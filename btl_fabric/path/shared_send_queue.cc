// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/shared_send_queue.h"

#include "btl_fabric/mca/module.h"
#include "btl_fabric/peer/endpoint.h"

namespace fabric {

namespace {

/// Appends to a line that is linked through its members; once, however often it is asked.
template <class T>
void append(T*& first, T*& last, T& one) noexcept {
  if (one.in_line) {
    return;
  }
  one.in_line = true;
  one.next_in_line = nullptr;
  (first == nullptr ? first : last->next_in_line) = &one;
  last = &one;
}

template <class T>
void remove(T*& first, T*& last, T& one) noexcept {
  if (!one.in_line) {
    return;
  }
  one.in_line = false;
  T* before = nullptr;
  for (T* at = first; at != &one; at = at->next_in_line) {
    before = at;
  }
  (before == nullptr ? first : before->next_in_line) = one.next_in_line;
  if (last == &one) {
    last = before;
  }
}

}  // namespace

SharedSendQueue::SharedSendQueue(ibv_qp* queue_pair, const QueueSpace& space, Module& module)
    : SendQueue(space), rdma_(module, tx) {
  qp = queue_pair;
  rdma_.learn_reads(qp);
}

void SharedSendQueue::line_up(EndpointQueue& queue) noexcept {
  append(first_in_line, last_in_line_, queue);
}
void SharedSendQueue::leave(EndpointQueue& queue) noexcept {
  remove(first_in_line, last_in_line_, queue);
}
void SharedSendQueue::line_up(EndpointRdma& rdma) noexcept {
  append(first_rdma_, last_rdma_, rdma);
}
void SharedSendQueue::leave(EndpointRdma& rdma) noexcept {
  remove(first_rdma_, last_rdma_, rdma);
}

void SharedSendQueue::serve() noexcept {
  for (bool served = true; served && !failed_;) {
    served = serve_message();
    served = serve_rdma() || served;
  }
}

/// False if nobody could be served.
bool SharedSendQueue::serve_message() noexcept {
  EndpointQueue* queue = first_in_line;
  if (queue == nullptr || !tx.has_room()) {
    return false;
  }
  leave(*queue);
  queue->endpoint.send_one(*queue);
  if (!queue->waiting.empty()) {
    line_up(*queue);
  }
  return true;
}

bool SharedSendQueue::serve_rdma() noexcept {
  EndpointRdma* rdma = first_rdma_;
  if (rdma == nullptr || failed_) {
    return false;
  }
  switch (rdma->start_first()) {
    case EndpointRdma::Started::kNoRoom:
      return false;
    case EndpointRdma::Started::kLater:
      leave(*rdma);  // whatever it waits for brings it back
      return true;
    case EndpointRdma::Started::kFailed:
      return false;
    case EndpointRdma::Started::kYes:
    case EndpointRdma::Started::kNever:
      break;
  }
  leave(*rdma);
  if (rdma->has_waiting()) {
    line_up(*rdma);
  }
  return true;
}

}  // namespace fabric
