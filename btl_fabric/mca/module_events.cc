// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events of a module's device.
#include <algorithm>
#include <cstring>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"

namespace fabric {

namespace {

/// A queue of the endpoint that sends or receives through this queue pair; null if there is none.
const EndpointQueue* queue_with(Endpoint& endpoint, std::size_t queues, std::uint32_t qpn) noexcept {
  for (std::size_t i = 0; i < queues; ++i) {
    const EndpointQueue& queue = endpoint.queue(i);
    if ((queue.qp != nullptr && queue.qp->qp_num == qpn) ||
        (queue.sends->qp != nullptr && queue.sends->qp->qp_num == qpn) || endpoint.target() == qpn) {
      return &queue;
    }
  }
  return nullptr;
}

}  // namespace

void Module::handle(const cpc::AsyncEvent& event) {
  switch (event.type) {
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      for (const auto& shared : shared_queues_) {
        if (shared && shared->srq() == event.object) {
          ++counters().srq_limit_events;
          shared->limit_reached();
        }
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      queue_pair_failed(event);
      break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      if (event.type == IBV_EVENT_DEVICE_FATAL || owns(event.object)) {
        report_device_event(*this, event.type);
        tell_upper_layer(nullptr);
      }
      break;
    case IBV_EVENT_PORT_ERR:
      // Not fatal: the port may come back before the transport's retries are used up.
      if (is_of_port(event)) {
        report_device_event(*this, event.type);
      }
      break;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
      if (is_of_port(event)) {
        check_address();
      }
      break;
    default:
      break;  // news: ports coming up, queue pairs that are drained
  }
}

/// The modules of all contexts are told of a port's events; the first speaks for them.
bool Module::is_of_port(const cpc::AsyncEvent& event) const noexcept {
  return event.port_num == port_.port_num && place_.context == 0;
}

/// One of our completion queues or shared receive queues.
bool Module::owns(const void* object) const noexcept {
  for (std::size_t i = 0; i < completion_queues_->count(); ++i) {
    if (completion_queues_->queue(i) == object) {
      return true;
    }
  }
  return std::any_of(shared_queues_.begin(), shared_queues_.end(),
                     [&](const auto& shared) { return shared && shared->srq() == object; });
}

/// Where nothing is under way no completion tells that a queue pair has failed. Where something is, both do, in either order.
void Module::queue_pair_failed(const cpc::AsyncEvent& event) {
  for (const auto& [key, endpoint] : endpoints_) {
    const EndpointQueue* const queue = queue_with(*endpoint, queues_.count(), event.qp_num);
    const Endpoint::State state = endpoint->state();
    if (queue == nullptr || state == Endpoint::State::kFailed || state == Endpoint::State::kClosing) {
      continue;
    }
    report_queue_pair_event(*this, *endpoint, event.qp_num, event.type);
    if (queue->share != nullptr && queue->share->sends.qp->qp_num == event.qp_num) {
      fail_sharers(queue->share->sends, *endpoint);
    } else {
      fail(*endpoint);
    }
    return;
  }
}

/// The port is known to peers by the LID and GID that it had at the start, and other entries of its GID table may change.
void Module::check_address() {
  PortAddress now = address_;
  ibv_port_attr attributes{};
  ibv_gid gid{};
  ibv_context* const device = port_.device->context.get();
  if (ibv_query_port(device, port_.port_num, &attributes) == 0) {
    now.lid = attributes.lid;
  }
  if (ibv_query_gid(device, port_.port_num, port_.gid_index, &gid) == 0) {
    std::memcpy(now.gid.raw.data(), gid.raw, now.gid.raw.size());
  }
  if (now.lid != address_.lid || now.gid != address_.gid) {
    report_address_changed(*this, address_, now);
    address_ = now;
  }
}

}  // namespace fabric
