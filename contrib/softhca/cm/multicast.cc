// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups by IP address: which GID and LID a group has, and the queue pairs of ids that join it.
#include "cm/multicast.h"

#include <algorithm>
#include <cstring>

#include "cm/address.h"
#include "device/port.h"
#include "verbs/multicast.h"

namespace softhca::cm {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint16_t kFirstMulticastLid = 0xc000;
constexpr uint16_t kMulticastLids = 0x3fff;

// As the kernel's connection manager makes it.
ibv_gid group_of(const Id& id, const sockaddr* address) {
  ibv_gid gid{};
  to_bytes(address, gid.raw);
  if (address->sa_family != AF_INET || fabric().config().personality == Personality::Roce) return gid;
  ibv_gid mapped{{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff}};
  if (id.ps == RDMA_PS_UDP) mapped.raw[3] = 1;
  std::memcpy(mapped.raw + 12, gid.raw + 12, 4);
  mapped.raw[12] &= 15;
  return mapped;
}

// The subnet manager would choose one; here every group has its own, nearly.
uint16_t lid_of_group(const ibv_gid& group) {
  uint32_t hash = 0;
  for (const uint8_t byte : group.raw) hash = hash * 31 + byte;
  return static_cast<uint16_t>(kFirstMulticastLid + hash % kMulticastLids);
}

void fill(const Id& id, const ibv_gid& group, ibv_ah_attr& ah) {
  const Config& config = fabric().config();
  ah.port_num = id.port_num;
  ah.is_global = 1;
  ah.grh.dgid = group;
  ah.grh.sgid_index = static_cast<uint8_t>(gid_index(config));
  ah.grh.hop_limit = 1;
  ah.grh.traffic_class = id.tos;
  if (config.personality == Personality::Ib) ah.dlid = lid_of_group(group);
}

// The lock is held.
int join(Id& id, const sockaddr* address, bool receives, void* context) {
  if (address == nullptr || !is_group(address) || !datagram(id) || id.port_id == 0) return EINVAL;
  Membership joined{};
  std::memcpy(&joined.address, address, length_of(address));
  joined.group = group_of(id, address);
  // Without a queue pair of its own the program attaches one.
  joined.attached = receives && id.qp != nullptr;
  auto event = make_event(id, RDMA_CM_EVENT_MULTICAST_JOIN);
  rdma_ud_param& param = event->param.ud;
  param.private_data = context;
  fill(id, joined.group, param.ah_attr);
  param.qp_num = kMulticastQpn;
  param.qkey = RDMA_UDP_QKEY;
  id.memberships.push_back(joined);
  if (joined.attached)
    if (const int error = attach(*id.qp, joined.group)) {
      id.memberships.pop_back();
      return error;
    }
  push(std::move(event));
  return 0;
}

// The lock is held.
int leave(Id& id, const sockaddr* address) {
  if (address == nullptr) return EINVAL;
  const auto joined = std::find_if(id.memberships.begin(), id.memberships.end(), [&](const Membership& m) {
    return std::memcmp(&m.address, address, length_of(address)) == 0;
  });
  if (joined == id.memberships.end()) return EADDRNOTAVAIL;
  if (joined->attached && id.qp != nullptr) (void)detach(*id.qp, joined->group);
  id.memberships.erase(joined);
  return 0;
}

int join_and_complete(rdma_cm_id* id, const sockaddr* address, bool receives, void* context) {
  if (id == nullptr) return EINVAL;
  {
    Lock lock(manager().mutex);
    if (const int error = join(*Id::of(id), address, receives, context)) return error;
  }
  return complete(*Id::of(id));
}

}  // namespace

bool is_group(const sockaddr* address) {
  ibv_gid gid{};
  to_bytes(address, gid.raw);
  return !iwarp() && is_multicast(gid);
}

}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
  return api("rdma_join_multicast", id, [&] { return join_and_complete(id, addr, true, context); });
}

SOFTHCA_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr, void* context) {
  return api("rdma_join_multicast_ex", id, [&]() -> int {
    constexpr uint32_t kMasks = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attr == nullptr || attr->comp_mask != kMasks || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
    return join_and_complete(id, attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
  });
}

SOFTHCA_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  return api("rdma_leave_multicast", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    Lock lock(manager().mutex);
    return leave(*Id::of(id), addr);
  });
}
