// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/device_probe.h"

#include <hwloc/openfabrics-verbs.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>

#include "common/base/verbs_handle.h"

namespace fabric {

namespace {

/// Tries to make a small RC queue pair. True if it worked.
bool can_make_queue_pair(ibv_pd* pd, ibv_cq* cq, std::uint32_t max_inline) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = 1;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = 2;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = max_inline;
  return QueuePair(ibv_create_qp(pd, &attributes)) != nullptr;
}

std::uint8_t prefix_bits(const std::uint8_t* mask, std::size_t bytes) {
  unsigned bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    bits += static_cast<unsigned>(std::popcount(mask[i]));
  }
  return static_cast<std::uint8_t>(bits);
}

InterfaceAddress ipv4_interface(const ifaddrs& interface) {
  InterfaceAddress result;
  result.address[10] = 0xff;
  result.address[11] = 0xff;
  std::memcpy(&result.address[12], &reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr, 4);
  const auto* mask =
      reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(interface.ifa_netmask)->sin_addr);
  result.prefix_bits = static_cast<std::uint8_t>(96 + prefix_bits(mask, 4));
  return result;
}

InterfaceAddress ipv6_interface(const ifaddrs& interface) {
  InterfaceAddress result;
  std::memcpy(result.address.data(), &reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr)->sin6_addr, 16);
  const auto* mask =
      reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(interface.ifa_netmask)->sin6_addr);
  result.prefix_bits = prefix_bits(mask, 16);
  return result;
}

/// By name of the interface.
std::map<std::string, std::array<std::uint8_t, 20>> hardware_addresses(const ifaddrs* list) {
  std::map<std::string, std::array<std::uint8_t, 20>> result;
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr != nullptr && list->ifa_addr->sa_family == AF_PACKET) {
      // IPoIB's 20 bytes reach beyond the declared end of sll_addr; glibc leaves room for them.
      const auto* address = reinterpret_cast<const sockaddr_ll*>(list->ifa_addr);
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(address) + offsetof(sockaddr_ll, sll_addr);
      auto& known = result[list->ifa_name];
      std::copy_n(bytes, std::min<std::size_t>(address->sll_halen, known.size()), known.begin());
    }
  }
  return result;
}

GidType gid_type(std::uint32_t type) noexcept {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::kRoceV1;
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::kRoceV2;
    default:
      return GidType::kInfiniBand;
  }
}

}  // namespace

Result<std::uint32_t> probe_inline(ibv_pd* pd, std::uint32_t wanted) {
  const CompletionQueue cq(ibv_create_cq(pd->context, 2, nullptr, nullptr, 0));
  if (!cq) {
    return verbs_failure("it makes no completion queues", errno);
  }
  for (std::uint32_t size = wanted; size > 0; size = size > 16 ? size - 16 : size / 2) {
    if (can_make_queue_pair(pd, cq.get(), size)) {
      return size;
    }
  }
  if (can_make_queue_pair(pd, cq.get(), 0)) {
    return 0;
  }
  return verbs_failure("it makes no RC queue pairs", errno);
}

OnDemandPaging on_demand_paging(ibv_context* device) noexcept {
  constexpr std::uint32_t kTransfers = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(device, nullptr, &attributes) != 0 ||
      (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) {
    return {};
  }
  const std::uint32_t reliable = attributes.odp_caps.per_transport_caps.rc_odp_caps;
  const bool transfers = (reliable & kTransfers) == kTransfers;
  return {transfers, transfers && (reliable & IBV_ODP_SUPPORT_ATOMIC) != 0};
}

std::optional<Transport> link_of(ibv_context* device, const ibv_port_attr& port) noexcept {
  switch (device->device->transport_type) {
    case IBV_TRANSPORT_IB:
      return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::kRoce : Transport::kInfiniBand;
    case IBV_TRANSPORT_IWARP:
      return Transport::kIwarp;
    default:
      return std::nullopt;
  }
}

std::vector<GidEntry> gid_table(ibv_context* device, std::uint8_t port_num, const ibv_port_attr& port) {
  std::vector<GidEntry> table;
  for (std::uint32_t index = 0; index < static_cast<std::uint32_t>(port.gid_tbl_len); ++index) {
    ibv_gid_entry found{};
    if (ibv_query_gid_ex(device, port_num, index, &found, 0) != 0) {
      continue;  // empty entries answer ENODATA
    }
    GidEntry entry{index, {}, gid_type(found.gid_type)};
    std::memcpy(entry.gid.raw.data(), found.gid.raw, entry.gid.raw.size());
    if (!is_zero(entry.gid)) {
      table.push_back(entry);
    }
  }
  return table;
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return result;
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  const auto hardware = hardware_addresses(list);
  for (const ifaddrs* interface = list; interface != nullptr; interface = interface->ifa_next) {
    if (interface->ifa_addr == nullptr || interface->ifa_netmask == nullptr) {
      continue;
    }
    if (interface->ifa_addr->sa_family == AF_INET) {
      result.push_back(ipv4_interface(*interface));
    } else if (interface->ifa_addr->sa_family == AF_INET6) {
      result.push_back(ipv6_interface(*interface));
    } else {
      continue;
    }
    result.back().interface = if_nametoindex(interface->ifa_name);
    if (const auto found = hardware.find(interface->ifa_name); found != hardware.end()) {
      result.back().hardware = found->second;
    }
  }
  return result;
}

Result<PartitionKey> find_pkey(ibv_context* device, std::uint8_t port_num, const ibv_port_attr& port,
                               std::uint16_t pkey) {
  constexpr std::uint16_t kPartition = 0x7fff;
  constexpr std::uint16_t kFullMember = 0x8000;
  std::optional<PartitionKey> limited;
  for (std::uint16_t index = 0; index < port.pkey_tbl_len; ++index) {
    __be16 entry = 0;
    if (ibv_query_pkey(device, port_num, index, &entry) != 0) {
      continue;
    }
    const PartitionKey found{index, be16toh(entry)};
    if ((found.value & kPartition) == 0) {
      continue;  // an empty entry: there is no partition 0
    }
    if (pkey == 0) {
      pkey = found.value;
    }
    if ((found.value & kPartition) != (pkey & kPartition)) {
      continue;
    }
    if ((found.value & kFullMember) != 0) {
      return found;
    }
    if (!limited) {
      limited = found;
    }
  }
  if (limited) {
    return *limited;
  }
  return failure("partition key " + std::to_string(pkey & kPartition) + " is not in its table of " +
                 std::to_string(port.pkey_tbl_len));
}

std::uint32_t port_bandwidth(const ibv_port_attr& port) noexcept {
  // Codes of the port attributes, see man ibv_query_port; per lane, and in Mbit/s after encoding.
  constexpr std::uint32_t kUnknown = 10000;
  std::uint32_t lane = 0;
  switch (port.active_speed) {
    case 1:
      lane = 2000;
      break;  // SDR
    case 2:
      lane = 4000;
      break;  // DDR
    case 4:   // QDR
    case 8:
      lane = 10000;
      break;  // FDR10
    case 16:
      lane = 14000;
      break;  // FDR
    case 32:
      lane = 25000;
      break;  // EDR
    case 64:
      lane = 50000;
      break;  // HDR
    case 128:
      lane = 100000;
      break;  // NDR
    default:
      return kUnknown;
  }
  switch (port.active_width) {
    case 1:
      return lane;
    case 2:
      return lane * 4;
    case 4:
      return lane * 8;
    case 8:
      return lane * 12;
    case 16:
      return lane * 2;
    default:
      return kUnknown;
  }
}

std::uint8_t path_mtu(const ibv_port_attr& port, int wanted) noexcept {
  const int most = wanted > 0 ? std::min<int>(wanted, IBV_MTU_4096) : IBV_MTU_4096;
  return static_cast<std::uint8_t>(std::clamp<int>(port.active_mtu, IBV_MTU_256, most));
}

std::uint64_t longest_message(const ibv_port_attr& port) noexcept {
  constexpr std::uint64_t kMost = 1U << 30;
  return port.max_msg_sz == 0 ? kMost : std::min<std::uint64_t>(kMost, port.max_msg_sz);
}

unsigned nearness(hwloc_topology_t topology, hwloc_const_cpuset_t local, hwloc_const_cpuset_t binding) {
  if (hwloc_bitmap_intersects(local, binding) != 0) {
    return kNearest;
  }
  unsigned count = 1;
  hwloc_distances_s* distances = nullptr;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &distances, HWLOC_DISTANCES_KIND_MEANS_LATENCY,
                                  0) != 0 ||
      count == 0) {
    return kFar;
  }
  unsigned best = 0;
  for (unsigned from = 0; from < distances->nbobjs; ++from) {
    for (unsigned to = 0; to < distances->nbobjs; ++to) {
      const hwloc_obj_t here = distances->objs[from];
      const hwloc_obj_t there = distances->objs[to];
      if (here == nullptr || there == nullptr || here == there || hwloc_bitmap_intersects(here->cpuset, binding) == 0 ||
          hwloc_bitmap_intersects(there->cpuset, local) == 0) {
        continue;
      }
      const std::uint64_t within = distances->values[from * distances->nbobjs + from];
      const std::uint64_t between = distances->values[from * distances->nbobjs + to];
      if (between > 0) {
        best = std::max(best, static_cast<unsigned>(std::min<std::uint64_t>(kNearest, kNearest * within / between)));
      }
    }
  }
  hwloc_distances_release(topology, distances);
  return best > 0 ? best : kFar;
}

unsigned nearness(ibv_device* device, hwloc_topology_t topology, hwloc_const_cpuset_t binding) {
  if (topology == nullptr || binding == nullptr) {
    return kNearest;
  }
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> local(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  const bool known =
      hwloc_ibv_get_device_cpuset(topology, device, local.get()) == 0 && !hwloc_bitmap_iszero(local.get());
  return known ? nearness(topology, local.get(), binding) : kNearest;
}

}  // namespace fabric
