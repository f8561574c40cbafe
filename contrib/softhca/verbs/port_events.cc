// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/port_events.h"

#include <infiniband/verbs.h>

#include <mutex>

#include "transport/engine.h"
#include "verbs/objects.h"

namespace softhca::port_events {
namespace {

struct Seen {
  uint32_t changes, down, lid_offset, gid_salt, device_fatal;
};

// Of this process's node; the engine's thread alone uses it once that runs.
Seen seen[kMaxDevices][kMaxPorts];

Seen look(const PortShared& port) {
  const uint32_t changes = port.changes.load(std::memory_order_acquire);
  return {changes, port.down.load(std::memory_order_relaxed), port.lid_offset.load(std::memory_order_relaxed),
          port.gid_salt.load(std::memory_order_relaxed), port.device_fatal.load(std::memory_order_relaxed)};
}

struct Change {
  unsigned device;
  unsigned port;
  ibv_event_type type;
};

void tell(Context& context, void* argument) {
  const Change& change = *static_cast<const Change*>(argument);
  if (context.device->index == change.device) raise_port(context, change.type, change.port);
}

void tell_all(unsigned device, unsigned port, ibv_event_type type) {
  Change change{device, port, type};
  for_each_context(tell, &change);
}

// Nothing comes in or goes out by the context any more, as if its QPs were at no port. In this order: when calls fail, nothing comes any
// more, so that who takes what has come then has all that the peers were told has arrived.
void cut_off(Context& context, void* argument) {
  if (context.device->index != *static_cast<const unsigned*>(argument)) return;
  std::lock_guard guard(lookup_mutex());
  for (unsigned i = 0; i < tables().qps_end.load(std::memory_order_acquire); ++i) {
    Qp* const qp = tables().qps[i].load(std::memory_order_acquire);
    if (qp == nullptr || qp->owner != &context) continue;
    RobustGuard shared_guard(qp->shared->lock, Fabric::get()->stamp());
    qp->shared->port_id = 0;
    // The same state, in a word that is another: who knows the way here is to look again (transport/short_route.h).
    qp->shared->state.store(qp->shared->state.load());
  }
  context.fatal.store(true);
}

void fail_device(unsigned device, unsigned port) {
  for_each_context(cut_off, &device);
  const uint64_t us = Fabric::get()->config().fatal_us;
  if (us == 0) {
    tell_all(device, port, IBV_EVENT_DEVICE_FATAL);
  } else {
    engine::call_at(Fabric::now_ns() + us * 1000, [=] { tell_all(device, port, IBV_EVENT_DEVICE_FATAL); });
  }
}

void ports_changed() {
  Fabric& fabric = *Fabric::get();
  for (unsigned device = 0; device < fabric.config().devices; ++device)
    for (unsigned port = 1; port <= fabric.config().ports; ++port) {
      Seen& before = seen[device][port - 1];
      const Seen now = look(fabric.hub().ports[port_id_of(fabric.node(), device, port)]);
      if (now.changes == before.changes) continue;
      if (now.down != before.down) tell_all(device, port, now.down != 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
      if (now.lid_offset != before.lid_offset) tell_all(device, port, IBV_EVENT_LID_CHANGE);
      if (now.gid_salt != before.gid_salt) tell_all(device, port, IBV_EVENT_GID_CHANGE);
      if (now.device_fatal != before.device_fatal) fail_device(device, port);
      before = now;
    }
}

}  // namespace

void start(Fabric& fabric) {
  for (unsigned device = 0; device < kMaxDevices; ++device)
    for (unsigned port = 1; port <= kMaxPorts; ++port)
      seen[device][port - 1] = look(fabric.hub().ports[port_id_of(fabric.node(), device, port)]);
  engine::add_listener({.mail = nullptr, .death = nullptr, .ports_changed = ports_changed});
}

}  // namespace softhca::port_events
