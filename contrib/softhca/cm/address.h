// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Socket addresses: IPv4, IPv6, and InfiniBand's own (a GID, and a service id whose low 16 bits are the port).
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "fabric/fabric.h"

namespace softhca::cm {

// 0: a family that we do not know.
socklen_t length_of(const sockaddr* address);
bool wildcard(const sockaddr* address);

// Host order.
uint16_t port_number(const sockaddr* address);
// For AF_IB the whole service id is set, from the port space.
void set_port_number(sockaddr* address, uint16_t port_space, uint16_t port);
// The port space that a port number of this address is in: AF_IB says it in the service id. 0: it does not fit `ps`.
uint16_t port_space_of(const sockaddr* address, uint16_t ps);

// As 16 bytes: IPv6, IPv4 mapped, or a GID; zero for a wildcard.
void to_bytes(const sockaddr* address, uint8_t bytes[16]);
void from_bytes(sockaddr_storage* address, int family, const uint8_t bytes[16], uint16_t port_space, uint16_t port);

// The port of the fabric that has this address; 0: none.
uint32_t port_with_address(Fabric& fabric, const sockaddr* address);

// InfiniBand: the LID of a port that its subnet manager's paths have.
uint16_t path_lid(Fabric& fabric, uint32_t port_id);

// The entry of the GID table that connections use: RoCE v2 over IPv4.
unsigned gid_index(const Config& config);

}  // namespace softhca::cm
