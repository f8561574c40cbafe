// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/cm/cm_events.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "common/base/verbs_handle.h"
#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

CmEvent to_value(const rdma_cm_event& event) noexcept {
  CmEvent value;
  value.type = event.event;
  value.status = event.status;
  value.id = event.id;
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_REJECTED:
      if (event.param.conn.private_data != nullptr) {
        value.private_size = event.param.conn.private_data_len;
        std::memcpy(value.private_bytes.data(), event.param.conn.private_data, value.private_size);
      }
      value.peer_qpn = event.param.conn.qp_num & 0xffffff;
      break;
    default:
      break;
  }
  return value;
}

}  // namespace

Status CmEvents::open(event_base* loop) {
  channel_.reset(rdma_create_event_channel());
  if (!channel_) {
    return verbs_failure("the kernel's communication manager cannot be opened (is the module rdma_ucm loaded?)", errno);
  }
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    Status failed = verbs_failure("making the communication manager's events non-blocking", errno);
    channel_.reset();
    return failed;
  }
  watch_ = std::make_unique<Watch>(loop, channel_->fd, Watch::For::kReading, [this] { on_readable(); });
  watch_->start();
  return {};
}

void CmEvents::on_readable() {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_.get(), &event) == 0) {
    const CmEvent value = to_value(*event);
    const rdma_cm_id* const concerned = event->listen_id != nullptr ? event->listen_id : event->id;
    auto* const handler = static_cast<CmEventHandler*>(concerned->context);
    // Before anything that may throw or destroy an id, which waits until the id's events are acknowledged.
    rdma_ack_cm_event(event);
    handler->on_event(value);
  }
  if (errno == ENOMEM) {
    report_no_memory();  // the events wait in the kernel for the next turn
  } else if (errno != EAGAIN && errno != EINTR) {
    watch_->stop();  // it is gone, and would stay readable
  }
}

}  // namespace fabric::cpc
