// SPDX-License-Identifier: BSD-3-Clause
//
// Questions about a device or port that verbs answers only by trying, or in several steps.
#pragma once

#include <hwloc.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/result.h"
#include "common/ports/gid_choice.h"

namespace fabric {

/// The largest inline size, at most `wanted` bytes, that an RC queue pair of this device takes. Fails, with the reason,
/// if the device makes no RC queue pairs at all.
[[nodiscard]] Result<std::uint32_t> probe_inline(ibv_pd* pd, std::uint32_t wanted);

/// What a device does with memory that is not pinned (ODP), over reliable connections.
struct OnDemandPaging {
  bool transfers = false;  ///< sends from it, reads and writes
  bool atomics = false;
};
[[nodiscard]] OnDemandPaging on_demand_paging(ibv_context* device) noexcept;

/// What carries the packets of a port; nothing if it is a transport that this component does not know.
[[nodiscard]] std::optional<Transport> link_of(ibv_context* device, const ibv_port_attr& port) noexcept;

/// The entries of the port's GID table that are not zero.
[[nodiscard]] std::vector<GidEntry> gid_table(ibv_context* device, std::uint8_t port_num, const ibv_port_attr& port);

/// The addresses of this host's interfaces, IPv4 ones IPv4-mapped.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// An entry of a port's table of partition keys.
struct PartitionKey {
  std::uint16_t index = 0;
  std::uint16_t value = 0xffff;  ///< the top bit: full member, not limited
};

/// The entry for the partition of `pkey`, whose membership bit does not matter: as a full member, or else as a limited one,
/// who reaches full members only (InfiniBand Architecture Specification 1.4, section 10.9.3). 0: the partition of the
/// first entry that is not empty.
[[nodiscard]] Result<PartitionKey> find_pkey(ibv_context* device, std::uint8_t port_num, const ibv_port_attr& port,
                                             std::uint16_t pkey);

/// Link speed times width in Mbit/s. Codes that are not known yet count as 10 Gbit/s: an unknown speed never
/// disqualifies a port.
[[nodiscard]] std::uint32_t port_bandwidth(const ibv_port_attr& port) noexcept;

/// The path MTU, enum ibv_mtu: that of the port, at most `wanted` unless that is 0. Codes that are not known count as the nearest
/// that is.
[[nodiscard]] std::uint8_t path_mtu(const ibv_port_attr& port, int wanted) noexcept;

/// What a code of enum ibv_mtu stands for; 0 if it is none that is known.
[[nodiscard]] constexpr std::uint32_t mtu_bytes(std::uint8_t code) noexcept {
  return code >= IBV_MTU_256 && code <= IBV_MTU_4096 ? 128U << code : 0;
}

/// Bytes of the longest message of the port, at most 1 GiB: what fits a work request's length, and pins no more than that at once.
[[nodiscard]] std::uint64_t longest_message(const ibv_port_attr& port) noexcept;

/// How near something is to a process, in percent of what is at its own processors.
inline constexpr unsigned kNearest = 100;
/// Of what is elsewhere, where the system tells no distance.
inline constexpr unsigned kFar = 50;

/// Of a device at the processors `local`, to a process that is bound to those of `binding`: kNearest if they have one in common; else
/// the distance of memory within the process's NUMA nodes, of that to the device's (the nearest two count), as the system gives
/// them: 10 of 21 are 47. What it gives no distance of is kFar.
[[nodiscard]] unsigned nearness(hwloc_topology_t topology, hwloc_const_cpuset_t local, hwloc_const_cpuset_t binding);

/// The same of a device. kNearest if it cannot be told where that is. `topology` and `binding` may be null.
[[nodiscard]] unsigned nearness(ibv_device* device, hwloc_topology_t topology, hwloc_const_cpuset_t binding);

}  // namespace fabric
