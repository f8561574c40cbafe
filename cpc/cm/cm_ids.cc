// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/cm/cm_ids.h"

#include <infiniband/ib.h>
#include <netinet/in.h>

#include <cstring>

namespace fabric::cpc {

std::string describe(const CmEvent& event) {
  std::string text = rdma_event_str(event.type);
  if (event.type == RDMA_CM_EVENT_REJECTED && event.status > 0) {
    return text + ", reason " + std::to_string(event.status);  // of the REJ: InfiniBand Architecture, section 12.6.7.2
  }
  if (event.status != 0) {
    text.append(": ").append(std::strerror(event.status < 0 ? -event.status : event.status));
  }
  return text;
}

CmSocketAddress ip_address(const std::array<std::uint8_t, 16>& address, std::uint16_t port,
                           std::uint32_t scope) noexcept {
  CmSocketAddress made;
  Gid as_gid;
  as_gid.raw = address;
  if (is_ipv4_mapped(as_gid)) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&made.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    std::memcpy(&v4->sin_addr, address.data() + 12, 4);
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&made.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, address.data(), 16);
    v6->sin6_scope_id = is_link_local(as_gid) ? scope : 0;
  }
  return made;
}

CmSocketAddress ib_address(const std::array<std::uint8_t, 16>& gid, std::uint16_t pkey,
                           std::uint64_t service) noexcept {
  constexpr std::uint64_t kWholeServiceId = ~std::uint64_t{0};
  // The upper half of a service id of RDMA_PS_IB says so; the lower half counts like a port number.
  constexpr std::uint64_t kPortSpaceMask = 0xffffffffffff0000;
  CmSocketAddress made;
  auto* ib = reinterpret_cast<sockaddr_ib*>(&made.storage);
  ib->sib_family = AF_IB;
  ib->sib_pkey = htons(pkey);
  std::memcpy(&ib->sib_addr, gid.data(), gid.size());
  ib->sib_sid = htobe64(service != 0 ? service : std::uint64_t{RDMA_PS_IB} << 16);
  ib->sib_sid_mask = htobe64(service != 0 ? kWholeServiceId : kPortSpaceMask);
  return made;
}

}  // namespace fabric::cpc
