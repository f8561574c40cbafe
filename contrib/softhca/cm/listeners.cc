// SPDX-License-Identifier: BSD-3-Clause
#include "cm/listeners.h"

#include <infiniband/ib.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softhca::cm {
namespace {

constexpr uint32_t kFree = 0, kBound = 1, kListening = 2;
constexpr unsigned kEphemeralBegin = 32768, kEphemeralCount = 28232;  // Linux' default range

bool zero(const uint8_t bytes[16]) {
  return std::all_of(bytes, bytes + 16, [](uint8_t b) { return b == 0; });
}

bool owner_lives(Fabric& fabric, const CmListener& entry) {
  return fabric.alive(entry.slot, entry.incarnation);
}

// Whether both can get the same request.
bool overlap(const CmListener& a, const CmListener& b) {
  if (a.port_space != b.port_space || a.port != b.port || a.node != b.node) return false;
  if ((a.flags & b.flags & kListenAfOnly) != 0 && ((a.flags ^ b.flags) & kListenIpv6) != 0) return false;
  if (a.port_id != 0 && b.port_id != 0 && a.port_id != b.port_id) return false;
  return zero(a.address) || zero(b.address) || std::memcmp(a.address, b.address, 16) == 0;
}

template <typename F>
bool any_entry(Hub& hub, F f) {
  CmListener* const end = hub.listeners + hub.listeners_end.load(std::memory_order_acquire);
  return std::any_of(hub.listeners, end, [&](CmListener& entry) {
    return entry.in_use.load(std::memory_order_acquire) != kFree && f(entry);
  });
}

bool taken(Fabric& fabric, const CmListener& wanted) {
  return any_entry(fabric.hub(), [&](const CmListener& entry) {
    return overlap(entry, wanted) &&
           ((entry.flags & wanted.flags & kListenReuse) == 0 ||
            entry.in_use.load(std::memory_order_relaxed) == kListening) &&
           owner_lives(fabric, entry);
  });
}

CmListener* unused(Fabric& fabric) {
  Hub& hub = fabric.hub();
  const uint32_t end = hub.listeners_end.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < end; ++i)
    if (hub.listeners[i].in_use.load(std::memory_order_relaxed) == kFree) return &hub.listeners[i];
  if (end < kMaxListeners) {
    hub.listeners_end.store(end + 1, std::memory_order_release);
    return &hub.listeners[end];
  }
  for (CmListener& entry : hub.listeners)
    if (!owner_lives(fabric, entry)) return &entry;
  return nullptr;
}

}  // namespace

uint16_t unbound_port(Fabric& fabric) {
  return static_cast<uint16_t>(kEphemeralBegin + fabric.hub().next_cm_port.fetch_add(1) % kEphemeralCount);
}

int reserve_port(Fabric& fabric, CmListener& wanted, int* entry) {
  RobustGuard guard(fabric.hub().listeners_lock, fabric.stamp());
  if (wanted.port != 0) {
    if (taken(fabric, wanted)) return EADDRINUSE;
  } else {
    unsigned tries = 0;
    do {
      if (++tries > kEphemeralCount) return EADDRNOTAVAIL;
      wanted.port = unbound_port(fabric);
    } while (taken(fabric, wanted));
  }
  CmListener* place = unused(fabric);
  if (place == nullptr) return EADDRNOTAVAIL;
  place->in_use.store(kFree);
  place->slot = fabric.slot();
  place->incarnation = fabric.incarnation();
  place->id = wanted.id;
  place->port_id = wanted.port_id;
  place->node = wanted.node;
  place->port_space = wanted.port_space;
  place->port = wanted.port;
  place->flags = wanted.flags;
  std::memcpy(place->address, wanted.address, 16);
  place->in_use.store(kBound, std::memory_order_release);
  *entry = static_cast<int>(place - fabric.hub().listeners);
  return 0;
}

void release_port(Fabric& fabric, int entry) {
  RobustGuard guard(fabric.hub().listeners_lock, fabric.stamp());
  fabric.hub().listeners[entry].in_use.store(kFree, std::memory_order_release);
}

int start_listening(Fabric& fabric, int entry) {
  RobustGuard guard(fabric.hub().listeners_lock, fabric.stamp());
  CmListener& mine = fabric.hub().listeners[entry];
  const bool other = any_entry(fabric.hub(), [&](const CmListener& e) {
    return &e != &mine && e.in_use.load(std::memory_order_relaxed) == kListening && overlap(e, mine) &&
           owner_lives(fabric, e);
  });
  if (other) return EADDRINUSE;
  mine.in_use.store(kListening, std::memory_order_release);
  return 0;
}

ListenerAddress find_listener(Fabric& fabric, uint32_t port_id, uint16_t port_space, uint16_t port, int family,
                              const uint8_t address[16]) {
  ListenerAddress found{};
  RobustGuard guard(fabric.hub().listeners_lock, fabric.stamp());
  any_entry(fabric.hub(), [&](const CmListener& e) {
    if (e.in_use.load(std::memory_order_relaxed) != kListening || e.port_space != port_space || e.port != port)
      return false;
    if (e.node != node_of_port_id(port_id) || (e.port_id != 0 && e.port_id != port_id)) return false;
    // A request over native addresses has no IP addresses that an IP listener could compare, and the other way round.
    if ((family == AF_IB) != ((e.flags & kListenIb) != 0)) return false;
    if ((e.flags & kListenAfOnly) != 0 && (family == AF_INET6) != ((e.flags & kListenIpv6) != 0)) return false;
    if (family != AF_IB && !zero(e.address) && std::memcmp(e.address, address, 16) != 0) return false;
    if (!owner_lives(fabric, e)) return false;
    found = {e.slot, e.incarnation, e.id};
    return true;
  });
  return found;
}

}  // namespace softhca::cm
