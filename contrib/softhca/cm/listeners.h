// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Port numbers, per port space and node: a table in the hub that all processes share.
#include <cstdint>

#include "fabric/fabric.h"

namespace softhca::cm {

// CmListener::flags
enum ListenerFlags : uint16_t {
  kListenReuse = 1,   // RDMA_OPTION_ID_REUSEADDR
  kListenAfOnly = 2,  // RDMA_OPTION_ID_AFONLY
  kListenIpv6 = 4,
  kListenIb = 8,
};

// Takes `wanted.port`, or with 0 an ephemeral port, which is then in `wanted`. 0 and the entry's index, or EADDRINUSE,
// EADDRNOTAVAIL (no port is left).
int reserve_port(Fabric& fabric, CmListener& wanted, int* entry);
void release_port(Fabric& fabric, int entry);
// From now on it gets requests. 0, or EADDRINUSE: another one, with RDMA_OPTION_ID_REUSEADDR, listens there.
int start_listening(Fabric& fabric, int entry);

// An ephemeral port of the side that connects. It is not kept in the table: nobody can connect to it.
uint16_t unbound_port(Fabric& fabric);

struct ListenerAddress {
  unsigned slot;  // 0: nobody listens there
  uint32_t incarnation;
  uint32_t id;
};
ListenerAddress find_listener(Fabric& fabric, uint32_t port_id, uint16_t port_space, uint16_t port, int family,
                              const uint8_t address[16]);

}  // namespace softhca::cm
