// SPDX-License-Identifier: BSD-3-Clause
#include "device/port.h"

#include <arpa/inet.h>
#include <endian.h>
#include <ifaddrs.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <cstring>

namespace softhca {
namespace {

// LIDs begin after the subnet manager's. A change of LID moves a port by a multiple of kLidStep, so that no two meet. With an LMC
// these are multiplied, and what a packet's LID has in the low bits makes no difference.
constexpr unsigned kFirstLid = 2;
constexpr unsigned kLidStep = 1024;
constexpr unsigned kLidSteps = 46;
static_assert(kPortIds + kFirstLid < kLidStep && kLidSteps * kLidStep < 0xc000);

// The vendor part of GUIDs and MAC addresses has the bit of locally administered ones.
constexpr uint8_t kVendor[] = {0x02, 0x53, 0x48};

constexpr uint64_t kLinkLocal = uint64_t{0xfe80} << 48;

bool exists(const Config& config, unsigned node, unsigned device, unsigned port) {
  return node < config.nodes && device < config.devices && port >= 1 && port <= config.ports;
}
bool exists(const Config& config, uint32_t port_id) {
  return port_id != 0 && port_id < kPortIds &&
         exists(config, node_of_port_id(port_id), device_of_port_id(port_id), port_of_port_id(port_id));
}

uint32_t salt_of(Fabric& fabric, uint32_t port_id) {
  return fabric.hub().ports[port_id].gid_salt.load(std::memory_order_acquire);
}

// The six bytes of an Ethernet address: vendor (two bytes), salt, node, device, port.
void put_mac(uint8_t* mac, uint32_t port_id, uint32_t salt) {
  mac[0] = kVendor[0];
  mac[1] = kVendor[1];
  mac[2] = static_cast<uint8_t>(kVendor[2] + salt);
  mac[3] = static_cast<uint8_t>(node_of_port_id(port_id));
  mac[4] = static_cast<uint8_t>(device_of_port_id(port_id));
  mac[5] = static_cast<uint8_t>(port_of_port_id(port_id));
}

// The IPv4-mapped address.
void put_ip(uint8_t* gid, uint32_t port_id) {
  const in_addr ip = ip_of(port_id);
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid + 12, &ip, sizeof ip);
}

uint64_t guid_of(unsigned node, unsigned device, unsigned port, uint32_t salt) {
  return uint64_t{kVendor[0]} << 56 | uint64_t{kVendor[1]} << 48 | uint64_t{kVendor[2]} << 40 |
         uint64_t{salt & 0xffff} << 24 | uint64_t{node} << 16 | uint64_t{device} << 8 | port;
}

// The candidate that the bytes of a GID name; whether its GIDs really have this one is the caller's to check.
uint32_t candidate(const Config& config, unsigned node, unsigned device, unsigned port) {
  return exists(config, node, device, port) ? port_id_of(node, device, port) : 0;
}

uint32_t port_with_ipv4(const Config& config, unsigned node, in_addr address) {
  const uint32_t ip = ntohl(address.s_addr);
  if (ip >> 22 == (uint32_t{127} << 24 | uint32_t{64} << 16) >> 22)
    return candidate(config, (ip >> 16 & 0xff) - 64, ip >> 8 & 0xff, ip & 0xff);
  return ip >> 24 == 127 ? port_id_of(node, 0, 1) : 0;
}

bool is_local(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* i = all; i != nullptr && !found; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != address->sa_family) continue;
    if (address->sa_family == AF_INET)
      found = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr ==
              reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr;
    else if (address->sa_family == AF_INET6)
      found = std::memcmp(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr,
                          &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, sizeof(in6_addr)) == 0;
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

unsigned gid_count(const Config& config) {
  switch (config.personality) {
    case Personality::Ib:
      return 1;
    case Personality::Iwarp:
      return 2;
    case Personality::Roce:
      break;
  }
  return 4;
}

unsigned gid_table_length(const Config& config) {
  return std::max(gid_count(config), config.gids);
}

bool gid_at(Fabric& fabric, uint32_t port_id, unsigned index, ibv_gid* gid) {
  const Config& config = fabric.config();
  if (!exists(config, port_id) || index >= gid_count(config)) return false;
  *gid = {};
  const uint32_t salt = salt_of(fabric, port_id);
  switch (config.personality) {
    case Personality::Ib:
      gid->global.subnet_prefix = htobe64(kLinkLocal);
      gid->global.interface_id =
          htobe64(guid_of(node_of_port_id(port_id), device_of_port_id(port_id), port_of_port_id(port_id), salt));
      break;
    case Personality::Roce:
      if (index < 2) {  // the interface identifier of IPv6: the MAC address with one bit turned and ff:fe in the middle
        uint8_t mac[6];
        put_mac(mac, port_id, salt);
        gid->global.subnet_prefix = htobe64(kLinkLocal);
        gid->raw[8] = mac[0] ^ 2;
        std::memcpy(gid->raw + 9, mac + 1, 2);
        gid->raw[11] = 0xff;
        gid->raw[12] = 0xfe;
        std::memcpy(gid->raw + 13, mac + 3, 3);
      } else {
        put_ip(gid->raw, port_id);
      }
      break;
    case Personality::Iwarp:
      if (index == 0)
        put_mac(gid->raw, port_id, salt);
      else
        put_ip(gid->raw, port_id);
      break;
  }
  return true;
}

uint32_t gid_type_at(const Config& config, unsigned index) {
  if (config.personality != Personality::Roce) return IBV_GID_TYPE_IB;
  return index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

uint16_t lid_of(Fabric& fabric, uint32_t port_id) {
  if (fabric.config().personality != Personality::Ib || !exists(fabric.config(), port_id)) return 0;
  const unsigned lmc = fabric.config().lmc;
  const uint32_t steps = fabric.hub().ports[port_id].lid_offset.load(std::memory_order_acquire) / kLidStep;
  return static_cast<uint16_t>((kFirstLid + port_id - 1 + steps % (kLidSteps >> lmc) * kLidStep) << lmc);
}

uint64_t node_guid_of(unsigned node, unsigned device) {
  return guid_of(node, device, 0, 0);
}

void mac_of(Fabric& fabric, uint32_t port_id, uint8_t mac[6]) {
  put_mac(mac, port_id, salt_of(fabric, port_id));
}

in_addr ip_of(uint32_t port_id) {
  return {htonl(uint32_t{127} << 24 | (64 + node_of_port_id(port_id)) << 16 | device_of_port_id(port_id) << 8 |
                port_of_port_id(port_id))};
}

uint16_t pkey_at(const Config& config, unsigned index) {
  if (index >= pkey_count(config)) return 0;
  return index == 0 ? 0xffff : 0x8001;
}
unsigned pkey_count(const Config& config) {
  return config.personality == Personality::Ib ? 2 : 1;
}

uint32_t resolve(Fabric& fabric, uint32_t from_port_id, const ibv_ah_attr& ah) {
  if (!exists(fabric.config(), from_port_id)) return 0;
  if (fabric.config().personality == Personality::Ib) {
    const uint32_t port_id = port_with_lid(fabric, ah.dlid);
    // A port drops what has come to its LID with another port's GID.
    return ah.is_global == 0 || port_with_gid(fabric, ah.grh.dgid) == port_id ? port_id : 0;
  }
  return ah.is_global != 0 ? port_with_gid(fabric, ah.grh.dgid) : 0;
}

uint32_t port_with_lid(Fabric& fabric, uint16_t lid) {
  const unsigned lmc = fabric.config().lmc;
  const uint32_t first = uint32_t{lid} >> lmc;
  const uint32_t port_id =
      first % kLidStep - kFirstLid + 1;  // LID 0 and the subnet manager's: not a port_id that exists
  return lid != 0 && exists(fabric.config(), port_id) && lid_of(fabric, port_id) == first << lmc ? port_id : 0;
}

uint32_t port_with_gid(Fabric& fabric, const ibv_gid& gid) {
  const Config& config = fabric.config();
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  uint32_t port_id = 0;
  if (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0)
    port_id = candidate(config, gid.raw[13] - 64U, gid.raw[14], gid.raw[15]);
  else if (config.personality == Personality::Iwarp)
    port_id = candidate(config, gid.raw[3], gid.raw[4], gid.raw[5]);
  else
    port_id = candidate(config, gid.raw[13], gid.raw[14], gid.raw[15]);
  ibv_gid own;
  for (unsigned i = 0; port_id != 0 && i < gid_count(config); ++i)
    if (gid_at(fabric, port_id, i, &own) && std::memcmp(own.raw, gid.raw, sizeof own.raw) == 0) return port_id;
  return 0;
}

uint32_t port_with_ip(Fabric& fabric, unsigned node, const sockaddr* address) {
  const Config& config = fabric.config();
  const uint32_t first = port_id_of(node, 0, 1);
  switch (address->sa_family) {
    case AF_INET: {
      const in_addr ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
      if (ntohl(ip.s_addr) >> 24 == 127) return port_with_ipv4(config, node, ip);
      return is_local(address) ? first : 0;
    }
    case AF_INET6: {
      const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
      if (IN6_IS_ADDR_V4MAPPED(&ip)) {
        sockaddr_in mapped{};
        mapped.sin_family = AF_INET;
        std::memcpy(&mapped.sin_addr, ip.s6_addr + 12, sizeof mapped.sin_addr);
        return port_with_ip(fabric, node, reinterpret_cast<const sockaddr*>(&mapped));
      }
      return IN6_IS_ADDR_LOOPBACK(&ip) || is_local(address) ? first : 0;
    }
    case AF_IB: {
      ibv_gid gid;
      std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_ib*>(address)->sib_addr, sizeof gid.raw);
      return port_with_gid(fabric, gid);
    }
    default:
      return 0;
  }
}

bool port_up(Fabric& fabric, uint32_t port_id) {
  return exists(fabric.config(), port_id) && fabric.hub().ports[port_id].down.load(std::memory_order_acquire) == 0;
}

std::string device_name(unsigned device) {
  return "softhca" + std::to_string(device);
}

}  // namespace softhca
