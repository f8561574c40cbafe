// SPDX-License-Identifier: BSD-3-Clause
#include "cm/address.h"

#include <endian.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cstring>

#include "device/port.h"

namespace softhca::cm {
namespace {

const sockaddr_in& in4(const sockaddr* a) {
  return *reinterpret_cast<const sockaddr_in*>(a);
}
const sockaddr_in6& in6(const sockaddr* a) {
  return *reinterpret_cast<const sockaddr_in6*>(a);
}
const sockaddr_ib& ib(const sockaddr* a) {
  return *reinterpret_cast<const sockaddr_ib*>(a);
}

}  // namespace

socklen_t length_of(const sockaddr* address) {
  switch (address->sa_family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case AF_IB:
      return sizeof(sockaddr_ib);
    default:
      return 0;
  }
}

void to_bytes(const sockaddr* address, uint8_t bytes[16]) {
  std::memset(bytes, 0, 16);
  if (address->sa_family == AF_INET) {
    if (in4(address).sin_addr.s_addr == 0) return;
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes + 12, &in4(address).sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(bytes, &in6(address).sin6_addr, 16);
  } else if (address->sa_family == AF_IB) {
    std::memcpy(bytes, &ib(address).sib_addr, 16);
  }
}

bool wildcard(const sockaddr* address) {
  uint8_t bytes[16];
  to_bytes(address, bytes);
  return std::all_of(bytes, bytes + 16, [](uint8_t b) { return b == 0; });
}

uint16_t port_number(const sockaddr* address) {
  switch (address->sa_family) {
    case AF_INET:
      return ntohs(in4(address).sin_port);
    case AF_INET6:
      return ntohs(in6(address).sin6_port);
    case AF_IB:
      return static_cast<uint16_t>(be64toh(ib(address).sib_sid & ib(address).sib_sid_mask));
    default:
      return 0;
  }
}

void set_port_number(sockaddr* address, uint16_t port_space, uint16_t port) {
  if (address->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  } else if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else if (address->sa_family == AF_IB) {
    auto* sib = reinterpret_cast<sockaddr_ib*>(address);
    sib->sib_sid = htobe64(uint64_t{port_space} << 16 | port);
    sib->sib_sid_mask = ~uint64_t{0};
  }
}

uint16_t port_space_of(const sockaddr* address, uint16_t ps) {
  if (address->sa_family != AF_IB) return ps;
  // Bits that the mask leaves open fit every port space. RDMA_PS_IB may use the service ids of the others.
  const uint64_t mask = be64toh(ib(address).sib_sid_mask) & RDMA_IB_IP_PS_MASK;
  const uint64_t service = be64toh(ib(address).sib_sid) & mask;
  for (const uint16_t space : {uint16_t{RDMA_PS_IB}, uint16_t{RDMA_PS_TCP}, uint16_t{RDMA_PS_UDP}})
    if ((ps == space || ps == RDMA_PS_IB) && service == (uint64_t{space} << 16 & mask)) return space;
  return 0;
}

void from_bytes(sockaddr_storage* address, int family, const uint8_t bytes[16], uint16_t port_space, uint16_t port) {
  std::memset(address, 0, sizeof *address);
  address->ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    std::memcpy(&reinterpret_cast<sockaddr_in*>(address)->sin_addr, bytes + 12, 4);
  } else if (family == AF_INET6) {
    std::memcpy(&reinterpret_cast<sockaddr_in6*>(address)->sin6_addr, bytes, 16);
  } else {
    auto* sib = reinterpret_cast<sockaddr_ib*>(address);
    std::memcpy(&sib->sib_addr, bytes, 16);
    sib->sib_pkey = htobe16(0xffff);
  }
  set_port_number(reinterpret_cast<sockaddr*>(address), port_space, port);
}

uint32_t port_with_address(Fabric& fabric, const sockaddr* address) {
  if (address->sa_family != AF_IB) return port_with_ip(fabric, fabric.node(), address);
  if (wildcard(address)) return port_id_of(fabric.node(), 0, 1);
  ibv_gid gid;
  std::memcpy(&gid, &ib(address).sib_addr, sizeof gid);
  return port_with_gid(fabric, gid);
}

uint16_t path_lid(Fabric& fabric, uint32_t port_id) {
  const Config& config = fabric.config();
  return static_cast<uint16_t>(lid_of(fabric, port_id) + (config.sm_path & ((1U << config.lmc) - 1)));
}

unsigned gid_index(const Config& config) {
  return config.personality == Personality::Roce ? 3 : 0;
}

}  // namespace softhca::cm
