// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Who is attached to a multicast group: GroupMember in the hub. A group is its GID; LIDs of groups mean nothing here.
#include <infiniband/verbs.h>

namespace softhca {

// One of InfiniBand and IPv6, or the mapped address of an IPv4 group.
bool is_multicast(const ibv_gid& gid);
// As ibv_attach_mcast and ibv_detach_mcast. 0 or an errno.
int attach(ibv_qp& qp, const ibv_gid& group);
int detach(ibv_qp& qp, const ibv_gid& group);
// From all groups: the queue pair goes away.
void detach_from_all(const ibv_qp& qp);

}  // namespace softhca
