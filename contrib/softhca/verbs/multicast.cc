// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/multicast.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "verbs/call.h"

namespace softhca {
namespace {

// `groups_lock` is held.
std::span<GroupMember> members(Hub& hub) {
  return {hub.groups, std::min(hub.groups_end.load(std::memory_order_relaxed), kMaxGroupMembers)};
}

// nullptr: it is not attached.
GroupMember* find(Hub& hub, const ibv_qp& qp, const ibv_gid& group) {
  for (GroupMember& member : members(hub))
    if (member.in_use.load(std::memory_order_relaxed) != 0 && member.qpn == qp.qp_num &&
        member.incarnation == Fabric::get()->incarnation() &&
        std::memcmp(member.group, group.raw, sizeof member.group) == 0)
      return &member;
  return nullptr;
}

// A free place, or that of a process that is gone; nullptr: none.
GroupMember* find_place(Fabric& fabric) {
  Hub& hub = fabric.hub();
  for (GroupMember& member : members(hub))
    if (member.in_use.load(std::memory_order_relaxed) == 0 || !fabric.alive(member.slot, member.incarnation))
      return &member;
  const uint32_t end = hub.groups_end.load(std::memory_order_relaxed);
  if (end >= kMaxGroupMembers) return nullptr;
  hub.groups_end.store(end + 1, std::memory_order_release);
  return &hub.groups[end];
}

}  // namespace

bool is_multicast(const ibv_gid& gid) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return gid.raw[0] == 0xff || (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0 && gid.raw[12] >> 4 == 0xe);
}

int attach(ibv_qp& qp, const ibv_gid& group) {
  if (const int error = cannot_use(*Context::of(qp.context))) return error;
  if (qp.qp_type != IBV_QPT_UD || !is_multicast(group)) return EINVAL;
  Fabric& fabric = *Fabric::get();
  RobustGuard guard(fabric.hub().groups_lock, fabric.stamp());
  if (find(fabric.hub(), qp, group) != nullptr) return 0;
  GroupMember* place = find_place(fabric);
  if (place == nullptr) return ENOMEM;
  place->in_use.store(0, std::memory_order_relaxed);
  place->slot = fabric.slot();
  place->incarnation = fabric.incarnation();
  place->qpn = qp.qp_num;
  std::memcpy(place->group, group.raw, sizeof place->group);
  place->in_use.store(1, std::memory_order_release);
  return 0;
}

int detach(ibv_qp& qp, const ibv_gid& group) {
  if (const int error = in_child(qp.context)) return error;
  Fabric& fabric = *Fabric::get();
  RobustGuard guard(fabric.hub().groups_lock, fabric.stamp());
  GroupMember* member = find(fabric.hub(), qp, group);
  if (member == nullptr) return EINVAL;
  member->in_use.store(0, std::memory_order_release);
  return 0;
}

void detach_from_all(const ibv_qp& qp) {
  Fabric& fabric = *Fabric::get();
  if (qp.qp_type != IBV_QPT_UD || fabric.hub().groups_end.load(std::memory_order_acquire) == 0) return;
  RobustGuard guard(fabric.hub().groups_lock, fabric.stamp());
  for (GroupMember& member : members(fabric.hub()))
    if (member.qpn == qp.qp_num && member.incarnation == fabric.incarnation())
      member.in_use.store(0, std::memory_order_release);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return attach(*qp, *gid);
}

SOFTHCA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return detach(*qp, *gid);
}
