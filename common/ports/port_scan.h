// SPDX-License-Identifier: BSD-3-Clause
//
// Finds the ports that a process can use, and says of every other one why not.
#pragma once

#include <hwloc.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/verbs_handle.h"
#include "common/ports/device_probe.h"
#include "common/ports/gid_choice.h"
#include "common/ports/port_address.h"
#include "common/ports/port_filter.h"
#include "common/ports/port_rails.h"
#include "common/ports/subnet_list.h"

namespace fabric {

/// A device that at least one usable port belongs to.
struct OpenDevice {
  std::string name;
  DeviceContext context;
  ProtectionDomain pd;
  ibv_device_attr attributes{};
  std::uint32_t max_inline = 0;  ///< bytes, found by making queue pairs (verbs has no query for it)
  OnDemandPaging on_demand;
};

/// A port with everything a module needs to know of it.
struct UsablePort {
  std::shared_ptr<OpenDevice> device;  ///< shared by the ports of the device
  std::uint8_t port_num = 1;
  std::uint8_t gid_index = 0;
  bool needs_grh = false;  ///< packets go by GID on InfiniBand too: IBV_QPF_GRH_REQUIRED, ibv_query_port(3)
  std::uint16_t pkey_index = 0;
  std::uint16_t pkey = 0xffff;  ///< the partition key there
  PortAddress address;
  std::optional<InterfaceAddress> ip;  ///< of its network interface
  std::uint32_t bandwidth = 0;         ///< Mbit/s; an educated guess when the link's speed code is unknown
  /// What it takes of large messages, beside other ports: its bandwidth, times how near it is to this process.
  std::uint32_t weight = 0;
  std::uint16_t sm_lid = 0;            ///< InfiniBand: of the subnet manager, whose subnet the port is on; 0: not known
  std::uint8_t own_traffic_class = 0;  ///< RoCE: what the administrator gave the port; 0: none
  std::uint8_t lmc = 0;                ///< InfiniBand: the port has the 2^lmc LIDs from `address.lid` on
  std::uint8_t path_bits = 0;          ///< InfiniBand: which of them this path has
  std::uint8_t paths = 1;              ///< paths of the port; which of them this is, is in `address`

  /// The traffic class of its packets, where the user wants this one; -1: the port's own.
  [[nodiscard]] std::uint8_t traffic_class(int wanted) const noexcept {
    return wanted >= 0 ? static_cast<std::uint8_t>(wanted) : own_traffic_class;
  }
  /// "mlx5_0:1"
  [[nodiscard]] std::string name() const { return device->name + ":" + std::to_string(port_num); }
};

/// A port, or a whole device, that cannot be used.
struct PortRefusal {
  std::string port;
  std::string reason;
};

/// What the user asked for.
struct PortChoice {
  PortFilter filter;
  PortRails rails;
  SubnetList subnets;      ///< GIDs of other networks are not used
  int gid_index = -1;      ///< -1: choose_gid()
  int mtu = 0;             ///< largest path MTU, enum ibv_mtu; 0: the port's
  std::uint16_t pkey = 0;  ///< 0: the first of the table
  int max_inline = -1;     ///< -1: what the device takes, up to kAutoInline
  int max_ports = -1;      ///< -1: no limit
  bool ignore_locality = false;
  hwloc_topology_t topology = nullptr;     ///< null: every device is near
  hwloc_const_cpuset_t binding = nullptr;  ///< processors that this process is bound to; null: not bound
};

/// Inline size that is asked for when the user names none: more helps no latency-bound message.
inline constexpr std::uint32_t kAutoInline = 256;

struct PortScan {
  std::vector<UsablePort> ports;  ///< at most kMaxPorts
  std::vector<PortRefusal> refusals;
  std::size_t beyond_maximum = 0;  ///< ports that are refused only because there are kMaxPorts without them
};

/// A usable port and how near its device is to this process: nearness().
struct PortCandidate {
  UsablePort port;
  unsigned nearness = kNearest;
};

/// Gives each its weight, and adds those to `scan` that are used: on each network those of which no nearer one has twice the weight or
/// more, since what they take away from others by the way between processors they would not give back; and of these the first
/// `max_ports` (-1: as many as a process can have).
void select_ports(std::vector<PortCandidate> candidates, int max_ports, PortScan& scan);

/// Looks at all devices of this host. A port is usable if it is active, its device can make RC queue pairs, the filter
/// lets it pass, and no nearer port on its network is worth twice as much (select_ports()). Vendor and model play no part. Devices are
/// opened; those without a usable port are closed again.
[[nodiscard]] PortScan scan_ports(const PortChoice& choice);

/// The items of an include list by which no port is used, each with the reasons. `used` are names of ports.
[[nodiscard]] std::vector<PortRefusal> unused_items(const PortFilter& filter, const std::vector<std::string>& used,
                                                    const std::vector<PortRefusal>& refusals);

}  // namespace fabric
