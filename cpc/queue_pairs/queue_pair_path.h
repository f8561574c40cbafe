// SPDX-License-Identifier: BSD-3-Clause
//
// What queue pairs of every kind have in common on their way to "ready to send".
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/ports/port_address.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// "rxe0 port 1"
[[nodiscard]] inline std::string device_name(const PortContext& port) {
  return std::string(ibv_get_device_name(port.device->device)) + " port " + std::to_string(port.port_num);
}

/// Reads and atomics at once: ours, or fewer if the device has a lower maximum.
[[nodiscard]] inline std::uint8_t clamp_reads(int device_maximum, int ours) noexcept {
  return static_cast<std::uint8_t>(std::clamp(device_maximum, 0, ours));
}

/// The error says why path_to() leads from `port` to no such peer.
[[nodiscard]] inline Status check_path(const PortContext& port, const PortAddress& peer) {
  if (peer.link != port.address.link) {
    return failure(device_name(port) + " and the peer's port are on different kinds of link");
  }
  if (peer.link == Transport::kInfiniBand && peer.subnet != port.address.subnet) {
    return failure(device_name(port) + " and the peer's port are on different InfiniBand subnets");
  }
  return {};
}

/// The way from `port` to the peer's as both have published it: on InfiniBand by LID, within the subnet, and by GID too if the
/// port asks for that; on RoCE by GID.
[[nodiscard]] inline ibv_ah_attr published_path_to(const PortContext& port, const PortAddress& peer) {
  constexpr std::uint8_t kHopLimit = 64;
  ibv_ah_attr path{};
  path.port_num = port.port_num;
  path.sl = port.settings.service_level;
  if (peer.link == Transport::kInfiniBand) {
    path.dlid = peer.lid;
    path.src_path_bits = port.path_bits;
  }
  if (peer.link == Transport::kRoce || (peer.link == Transport::kInfiniBand && port.needs_grh)) {
    path.is_global = 1;
    std::copy(peer.gid.raw.begin(), peer.gid.raw.end(), path.grh.dgid.raw);
    path.grh.sgid_index = port.gid_index;
    path.grh.hop_limit = kHopLimit;
    path.grh.traffic_class = port.settings.traffic_class;
    path.grh.flow_label = port.flow_label;
  }
  return path;
}

/// Null if the subnet administrator was not asked, or has not answered. Progress thread only.
[[nodiscard]] inline const PathRecord* path_record(const PortContext& port, const Gid& peer) {
  return port.path_table != nullptr ? port.path_table->find(peer) : nullptr;
}

/// The same with what the subnet administrator says of our side, as far as it does. A service level that the user has set goes
/// before. Progress thread only.
[[nodiscard]] inline ibv_ah_attr path_to(const PortContext& port, const PortAddress& peer) {
  ibv_ah_attr path = published_path_to(port, peer);
  if (const PathRecord* const record = path_record(port, peer.gid); record != nullptr) {
    path.sl = path.sl != 0 ? path.sl : record->service_level;
    path.static_rate = record->rate;
    if (!port.path_table->has_own_lids()) {
      path.src_path_bits = record->path_bits;
    }
  }
  return path;
}

/// What the peer has to know of the way, as an address of ours that it is told: a queue pair takes only packets that come from
/// the LID that it sends to, in the packet size that it sends in. Progress thread only.
[[nodiscard]] inline PortAddress address_for(const PortContext& port, const Gid& peer) {
  PortAddress address = port.address;
  if (const PathRecord* const record = path_record(port, peer); record != nullptr) {
    address.mtu = record->mtu != 0 ? std::min(address.mtu, record->mtu) : address.mtu;
    if (!port.path_table->has_own_lids()) {
      address.lid = static_cast<std::uint16_t>(address.lid - port.path_bits + record->path_bits);
    }
  }
  return address;
}

/// The largest packets that go all the way: the same number on both sides, if the peer has said address_for(). Progress thread
/// only.
[[nodiscard]] inline ibv_mtu mtu_to(const PortContext& port, const PortAddress& peer) {
  return static_cast<ibv_mtu>(std::min(peer.mtu, address_for(port, peer.gid).mtu));
}

}  // namespace fabric::cpc
