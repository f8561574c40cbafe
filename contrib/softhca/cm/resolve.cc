// SPDX-License-Identifier: BSD-3-Clause
// From addresses to ports of the fabric: rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/address.h"
#include "cm/identifier.h"
#include "cm/listeners.h"
#include "cm/multicast.h"
#include "device/port.h"

namespace softhca::cm {
namespace {

constexpr uint8_t kPacketLifeTime = 15;

uint64_t milliseconds(int ms) {
  return static_cast<uint64_t>(std::max(ms, 1)) * 1000 * 1000;
}

// Native addresses are InfiniBand's own.
int check_family(const sockaddr* address) {
  if (address == nullptr || length_of(address) == 0) return EINVAL;
  return address->sa_family == AF_IB && fabric().config().personality != Personality::Ib ? ENODEV : 0;
}

int bind_locked(Id& id, const sockaddr* address) {
  if (id.state != State::Idle) return EINVAL;
  if (const int error = check_family(address)) return error;
  const uint16_t space = port_space_of(address, static_cast<uint16_t>(id.ps));
  if (space == 0) return EPROTONOSUPPORT;
  uint32_t port_id = 0;
  if (!wildcard(address)) {
    port_id = port_with_address(fabric(), address);
    if (port_id == 0 || node_of_port_id(port_id) != fabric().node())
      return address->sa_family == AF_IB ? ENODEV : EADDRNOTAVAIL;
  }
  CmListener wanted{};
  wanted.id = id.number;
  wanted.port_id = port_id;
  wanted.node = fabric().node();
  wanted.port_space = space;
  wanted.port = port_number(address);
  wanted.flags = static_cast<uint16_t>(id.listen_flags | (address->sa_family == AF_INET6 ? kListenIpv6 : 0) |
                                       (address->sa_family == AF_IB ? kListenIb : 0));
  to_bytes(address, wanted.address);
  if (const int error = reserve_port(fabric(), wanted, &id.listener)) return error;
  std::memcpy(&id.route.addr.src_storage, address, length_of(address));
  set_port_number(id.src(), space, wanted.port);
  id.service_space = space;
  if (port_id != 0) bind_to_port(id, port_id);
  id.state = State::Bound;
  return 0;
}

// The address with which this node appears to that destination.
void choose_source(Id& id, const sockaddr* dst, uint32_t local, bool same_node) {
  const uint16_t port = id.listener >= 0 ? port_number(id.src()) : unbound_port(fabric());
  uint8_t bytes[16] = {};
  if (dst->sa_family == AF_IB) {
    ibv_gid gid;
    gid_at(fabric(), local, 0, &gid);
    std::memcpy(bytes, &gid, sizeof gid);
  } else if (same_node) {
    to_bytes(dst, bytes);
  } else {
    const in_addr ip = ip_of(local);
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes + 12, &ip, sizeof ip);
  }
  from_bytes(&id.route.addr.src_storage, dst->sa_family, bytes, static_cast<uint16_t>(id.ps), port);
}

int resolve_locked(Id& id, const sockaddr* src, const sockaddr* dst, int timeout_ms) {
  if (const int error = check_family(dst)) return error;
  if (id.state != State::Idle && id.state != State::Bound) return EINVAL;
  if (id.state == State::Idle && src != nullptr && length_of(src) != 0)
    if (const int error = bind_locked(id, src)) return error;
  if (id.state == State::Bound && id.src()->sa_family != dst->sa_family) return EINVAL;
  const uint16_t space = port_space_of(dst, static_cast<uint16_t>(id.ps));
  if (space == 0) return EPROTONOSUPPORT;
  id.service_space = space;
  // The wildcard is this node.
  sockaddr_storage target{};
  std::memcpy(&target, dst, length_of(dst));
  if (wildcard(dst) && dst->sa_family != AF_IB) {
    uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1};
    if (dst->sa_family == AF_INET6) std::memcpy(loopback, &in6addr_loopback, sizeof loopback);
    from_bytes(&target, dst->sa_family, loopback, space, port_number(dst));
  }
  dst = reinterpret_cast<const sockaddr*>(&target);
  // A group is reached by the port itself.
  const bool to_group = datagram(id) && is_group(dst);
  const uint32_t own = id.port_id != 0 ? id.port_id : port_id_of(fabric().node(), 0, 1);
  const uint32_t remote = to_group ? own : port_with_address(fabric(), dst);
  if (remote == 0) {
    // Nobody answers: that takes as long as the user wants to wait.
    const State before = id.state;
    id.state = State::AddrQuery;
    if (before == State::Idle) std::memset(&id.route.addr.src_storage, 0, sizeof id.route.addr.src_storage);
    arm(id, milliseconds(timeout_ms), [](Id& i) {
      i.state = i.listener >= 0 ? State::Bound : State::Idle;
      push(i, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
    });
    return 0;
  }
  const bool same_node = !to_group && node_of_port_id(remote) == fabric().node();
  if (id.port_id == 0) {
    const uint32_t local =
        same_node ? remote : port_id_of(fabric().node(), device_of_port_id(remote), port_of_port_id(remote));
    choose_source(id, dst, local, same_node);
    bind_to_port(id, local);
  }
  id.peer_port_id = remote;
  id.route.addr.dst_storage = target;
  gid_at(fabric(), remote, gid_index(fabric().config()), &id.route.addr.addr.ibaddr.dgid);
  id.qkey = RDMA_UDP_QKEY;
  id.state = State::AddrResolved;
  push(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

void give_route(Id& id) {
  if (!iwarp()) {
    ibv_sa_path_rec& path = id.path;
    path = {};
    path.sgid = id.route.addr.addr.ibaddr.sgid;
    path.dgid = id.route.addr.addr.ibaddr.dgid;
    path.slid = htons(path_lid(fabric(), id.port_id));
    path.dlid = htons(path_lid(fabric(), id.peer_port_id));
    path.sl = static_cast<uint8_t>(fabric().config().personality == Personality::Ib ? fabric().config().sm_sl : 0);
    path.hop_limit = fabric().config().personality == Personality::Roce ? 64 : 0;
    path.traffic_class = id.tos;
    path.reversible = 1;
    path.numb_path = 1;
    path.pkey = id.route.addr.addr.ibaddr.pkey;
    path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
    path.mtu = id.path_mtu;
    path.rate = IBV_RATE_100_GBPS;
    path.packet_life_time = kPacketLifeTime;
    id.route.path_rec = &path;
    id.route.num_paths = 1;
  }
  id.state = State::RouteResolved;
  push(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

int route_locked(Id& id, int timeout_ms) {
  if (id.state != State::AddrResolved) return EINVAL;
  ibv_port_attr attr{};
  if (const int error = ibv_query_port(id.verbs, id.port_num, &attr)) return error;
  id.path_mtu = static_cast<uint8_t>(attr.active_mtu);
  const Config& config = fabric().config();
  const uint64_t answer =
      config.personality == Personality::Ib ? config.sm_us * 1000 : 0;  // Ethernet does not ask anybody
  // The subnet manager knows no path to or from a port that is down.
  if (config.personality == Personality::Ib &&
      (answer >= milliseconds(timeout_ms) || !port_up(fabric(), id.port_id) || !port_up(fabric(), id.peer_port_id))) {
    id.state = State::RouteQuery;
    arm(id, milliseconds(timeout_ms), [](Id& i) {
      i.state = State::AddrResolved;
      push(i, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
    });
  } else if (answer != 0) {
    id.state = State::RouteQuery;
    arm(id, answer, [](Id& i) { give_route(i); });
  } else {
    give_route(id);
  }
  return 0;
}

}  // namespace

int bind_address(Id& id, const sockaddr* address) {
  Lock lock(manager().mutex);
  return bind_locked(id, address);
}

int resolve_address(Id& id, const sockaddr* src, const sockaddr* dst, int timeout_ms) {
  Lock lock(manager().mutex);
  return resolve_locked(id, src, dst, timeout_ms);
}

int resolve_route(Id& id, int timeout_ms) {
  Lock lock(manager().mutex);
  return route_locked(id, timeout_ms);
}

}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
  return api("rdma_bind_addr", id, [&]() -> int { return id == nullptr ? EINVAL : bind_address(*Id::of(id), addr); });
}

SOFTHCA_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms) {
  return api("rdma_resolve_addr", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    const int error = resolve_address(*Id::of(id), src_addr, dst_addr, timeout_ms);
    return error != 0 ? error : complete(*Id::of(id));
  });
}

SOFTHCA_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  return api("rdma_resolve_route", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    const int error = resolve_route(*Id::of(id), timeout_ms);
    return error != 0 ? error : complete(*Id::of(id));
  });
}
