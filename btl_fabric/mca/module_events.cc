// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events of a module's device.
#include <cstring>
#include <new>

#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/report.h"
#include "btl_fabric/peer/device_loss.h"

namespace fabric {

namespace {

/// There are some that are not lost.
bool has_other_devices() noexcept {
  const Component& component = Component::get();
  for (std::size_t i = 0; i < component.ports(); ++i) {
    if (!component.port(i).cache().is_lost()) {
      return true;
    }
  }
  return false;
}

}  // namespace

void Module::handle(const cpc::AsyncEvent& event) noexcept try {
  switch (event.type) {
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      path().srq_limit_reached(event.object);
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      endpoints_.queue_pair_failed(event.qp_num, event.type);
      break;
    case IBV_EVENT_DEVICE_FATAL:
      lose_device();
      break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      if (path().owns(event.object)) {
        report_device_event(*this, event.type);
        services_.tell_upper_layer(nullptr);
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
} catch (const std::bad_alloc&) {
  services_.report_no_memory();
}

/// It will not come back, in this job. Who has another one goes on with that: the first of the device's modules says so.
void Module::lose_device() noexcept try {
  const bool is_first = cache_.lose_device();
  const bool goes_on = heal_timeout().count() > 0 && !fit_.queues.has_xrc() && has_other_devices();
  if (is_first) {
    report_device_gone(*this, goes_on);
  }
  if (goes_on) {
    DeviceLoss(endpoints_).begin();
    Component::get().locks().want_all(family_.size() > 1);
  } else if (is_first) {
    services_.tell_upper_layer(nullptr);
  }
} catch (const std::bad_alloc&) {
  services_.report_no_memory();
}

/// The modules of all contexts and paths are told of a port's events; the first speaks for them.
bool Module::is_of_port(const cpc::AsyncEvent& event) const noexcept {
  return event.port_num == port_.port_num && place_.context == 0 && port_.address.path == 0;
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
