// SPDX-License-Identifier: BSD-3-Clause
// Names: rdma_getaddrinfo and, for programs of newer rdma-core, its form with an event. libc knows the hosts.
#include <arpa/inet.h>
#include <netdb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cm/address.h"
#include "cm/identifier.h"

// rdma_cma.h of rdma-core 44 does not have these.
SOFTHCA_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                         const rdma_addrinfo* hints);
SOFTHCA_EXPORT int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
SOFTHCA_EXPORT int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg);

namespace softhca::cm {
namespace {

constexpr int kKnownFlags = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;
constexpr int kLookUpInSubnet = 0x10;  // RAI_SA; RAI_DNS (0x20) is the default

void* copy(const void* from, size_t length) {
  void* to = from != nullptr && length != 0 ? malloc(length) : nullptr;
  if (to != nullptr) std::memcpy(to, from, length);
  return to;
}

void set_address(sockaddr** address, socklen_t* length, const void* from, size_t bytes) {
  *address = static_cast<sockaddr*>(copy(from, bytes));
  *length = *address != nullptr ? static_cast<socklen_t>(bytes) : 0;
}

// The result, still without an address. Whatever `hints` leaves open follows from the rest of it.
rdma_addrinfo* make_info(const rdma_addrinfo& hints, int family) {
  auto* info = static_cast<rdma_addrinfo*>(calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return nullptr;
  info->ai_flags = hints.ai_flags;
  info->ai_family = family;
  info->ai_qp_type = hints.ai_qp_type;
  info->ai_port_space = hints.ai_port_space;
  if (info->ai_port_space == 0) info->ai_port_space = info->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (info->ai_qp_type == 0) info->ai_qp_type = info->ai_port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  if ((hints.ai_flags & RAI_PASSIVE) == 0)
    set_address(&info->ai_src_addr, &info->ai_src_len, hints.ai_src_addr, hints.ai_src_len);
  info->ai_route = copy(hints.ai_route, hints.ai_route_len);
  info->ai_route_len = info->ai_route != nullptr ? hints.ai_route_len : 0;
  info->ai_connect = copy(hints.ai_connect, hints.ai_connect_len);
  info->ai_connect_len = info->ai_connect != nullptr ? hints.ai_connect_len : 0;
  return info;
}

void put_address(rdma_addrinfo* info, const void* address, size_t length, const char* name) {
  const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
  set_address(passive ? &info->ai_src_addr : &info->ai_dst_addr, passive ? &info->ai_src_len : &info->ai_dst_len,
              address, length);
  if (name != nullptr) (passive ? info->ai_src_canonname : info->ai_dst_canonname) = strdup(name);
}

// A GID and the number of a port.
int native(const char* node, const char* service, const rdma_addrinfo& hints, rdma_addrinfo** result) {
  uint8_t gid[16] = {};
  if (node != nullptr && inet_pton(AF_INET6, node, gid) != 1) return EAI_NONAME;
  char* end = nullptr;
  const unsigned long port = service != nullptr ? strtoul(service, &end, 0) : 0;
  if (service != nullptr && (*end != 0 || end == service || port > 0xffff)) return EAI_SERVICE;
  rdma_addrinfo* info = make_info(hints, AF_IB);
  if (info == nullptr) return EAI_MEMORY;
  sockaddr_storage address;
  from_bytes(&address, AF_IB, gid, static_cast<uint16_t>(info->ai_port_space), static_cast<uint16_t>(port));
  put_address(info, &address, sizeof(sockaddr_ib), nullptr);
  *result = info;
  return 0;
}

int by_name(const char* node, const char* service, const rdma_addrinfo& hints, rdma_addrinfo** result) {
  addrinfo wanted{};
  wanted.ai_family = (hints.ai_flags & RAI_FAMILY) != 0 ? hints.ai_family : AF_UNSPEC;
  wanted.ai_flags = ((hints.ai_flags & RAI_PASSIVE) != 0 ? AI_PASSIVE : 0) |
                    ((hints.ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
  const bool udp = hints.ai_port_space == RDMA_PS_UDP || hints.ai_qp_type == IBV_QPT_UD;
  wanted.ai_socktype = udp ? SOCK_DGRAM : SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(node, service, &wanted, &list)) return error;
  rdma_addrinfo** tail = result;
  int error = 0;
  for (const addrinfo* i = list; i != nullptr && error == 0; i = i->ai_next) {
    *tail = make_info(hints, i->ai_family);
    if (*tail == nullptr) {
      error = EAI_MEMORY;
    } else {
      put_address(*tail, i->ai_addr, i->ai_addrlen, i->ai_canonname);
      tail = &(*tail)->ai_next;
    }
  }
  freeaddrinfo(list);
  return error;
}

// 0, EAI_*, or -1 and errno.
int look_up(const char* node, const char* service, const rdma_addrinfo* given, rdma_addrinfo** result) {
  static const rdma_addrinfo kNothing{};
  const rdma_addrinfo& hints = given != nullptr ? *given : kNothing;
  *result = nullptr;
  if ((hints.ai_flags & ~kKnownFlags & ~0x30) != 0) return EAI_BADFLAGS;
  if (hints.ai_qp_type == IBV_QPT_UD && hints.ai_port_space == RDMA_PS_TCP) return EAI_SOCKTYPE;
  int error = 0;
  if (node == nullptr && service == nullptr) {
    if (given == nullptr || (hints.ai_src_addr == nullptr && hints.ai_dst_addr == nullptr)) {
      errno = EINVAL;
      return -1;
    }
    rdma_addrinfo* info =
        make_info(hints, (hints.ai_dst_addr != nullptr ? hints.ai_dst_addr : hints.ai_src_addr)->sa_family);
    if (info == nullptr) return EAI_MEMORY;
    if ((hints.ai_flags & RAI_PASSIVE) != 0)
      set_address(&info->ai_src_addr, &info->ai_src_len, hints.ai_src_addr, hints.ai_src_len);
    set_address(&info->ai_dst_addr, &info->ai_dst_len, hints.ai_dst_addr, hints.ai_dst_len);
    *result = info;
  } else {
    const bool ib = (hints.ai_flags & RAI_FAMILY) != 0 && hints.ai_family == AF_IB;
    error = ib ? native(node, service, hints, result) : by_name(node, service, hints, result);
  }
  if (error != 0) {
    rdma_freeaddrinfo(*result);
    *result = nullptr;
  }
  return error;
}

rdma_addrinfo* copy_list(const rdma_addrinfo* from) {
  if (from == nullptr) return nullptr;
  rdma_addrinfo* info = make_info(*from, from->ai_family);
  if (info == nullptr) return nullptr;
  if (info->ai_src_addr == nullptr)
    set_address(&info->ai_src_addr, &info->ai_src_len, from->ai_src_addr, from->ai_src_len);
  set_address(&info->ai_dst_addr, &info->ai_dst_len, from->ai_dst_addr, from->ai_dst_len);
  if (from->ai_src_canonname != nullptr) info->ai_src_canonname = strdup(from->ai_src_canonname);
  if (from->ai_dst_canonname != nullptr) info->ai_dst_canonname = strdup(from->ai_dst_canonname);
  info->ai_next = copy_list(from->ai_next);
  return info;
}

}  // namespace
}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                    rdma_addrinfo** res) {
  int error = start();
  if (error == 0 && res == nullptr) error = EINVAL;
  if (error != 0) {
    errno = error;
    return -1;
  }
  return look_up(node, service, hints, res);
}

SOFTHCA_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* res) {
  while (res != nullptr) {
    rdma_addrinfo* next = res->ai_next;
    free(res->ai_src_addr);
    free(res->ai_dst_addr);
    free(res->ai_src_canonname);
    free(res->ai_dst_canonname);
    free(res->ai_route);
    free(res->ai_connect);
    free(res);
    res = next;
  }
}

SOFTHCA_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                         const rdma_addrinfo* hints) {
  return api("rdma_resolve_addrinfo", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    // There are no services in the subnet's administration.
    if (hints != nullptr && (hints->ai_flags & kLookUpInSubnet) != 0) return EOPNOTSUPP;
    Id& self = *Id::of(id);
    rdma_addrinfo* found = nullptr;
    const int error = look_up(node, service, hints, &found);
    {
      Lock lock(manager().mutex);
      rdma_freeaddrinfo(self.resolved);
      self.resolved = found;
      push(self, error == 0 ? kAddrInfoResolved : kAddrInfoError, error);
    }
    return complete(self);
  });
}

SOFTHCA_EXPORT int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  return api("rdma_query_addrinfo", id, [&]() -> int {
    if (id == nullptr || info == nullptr) return EINVAL;
    Lock lock(manager().mutex);
    if (Id::of(id)->resolved == nullptr) return ENODATA;
    *info = copy_list(Id::of(id)->resolved);
    return *info != nullptr ? 0 : ENOMEM;
  });
}
