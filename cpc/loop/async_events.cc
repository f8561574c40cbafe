// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/loop/async_events.h"

#include <fcntl.h>

#include <cerrno>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {
namespace {

AsyncEvent to_value(ibv_context* device, const ibv_async_event& event) noexcept {
  AsyncEvent value;
  value.device = device;
  value.type = event.event_type;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      value.object = event.element.cq;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      value.qp_num = event.element.qp->qp_num;  // which is there until the event is acknowledged
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      value.object = event.element.srq;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      value.port_num = event.element.port_num;
      break;
    default:
      break;  // of the whole device, or of objects that we do not make
  }
  return value;
}

}  // namespace

void AsyncEvents::add(ibv_context* device) {
  assert_on_progress_thread();
  if (device == nullptr || watches_.contains(device)) {
    return;
  }
  const int flags = fcntl(device->async_fd, F_GETFL);
  if (flags < 0 || fcntl(device->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return;  // reading such a descriptor could block the thread; a device without events still works
  }
  auto watch =
      std::make_unique<Watch>(loop_, device->async_fd, Watch::For::kReading, [this, device] { on_readable(device); });
  watch->start();
  watches_.emplace(device, std::move(watch));
}

void AsyncEvents::on_readable(ibv_context* device) {
  ibv_async_event event;
  while (ibv_get_async_event(device, &event) == 0) {
    const AsyncEvent value = to_value(device, event);
    // Before anything else: destroying a queue pair waits until its events are acknowledged.
    ibv_ack_async_event(&event);
    on_event_(value);
  }
  if (errno != EAGAIN && errno != EINTR) {
    // The device is gone. Its descriptor would stay readable, and the loop would spin.
    watches_.at(device)->stop();
  }
}

}  // namespace fabric::cpc
