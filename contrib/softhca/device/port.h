// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The addresses of every port of the fabric, computed from its number: LID, GIDs, IP address. What a work request or a
// connection names is turned back into a port here. All of it depends on the Config and, for LID and GID changes, on the hub.
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "fabric/config.h"
#include "fabric/fabric.h"

namespace softhca {

// GID table of a port:
//   ib     0: subnet prefix and port GUID
//   roce   0: RoCE v1, link local (MAC); 1: RoCE v2, the same; 2: RoCE v1, IPv4-mapped; 3: RoCE v2, IPv4-mapped
//   iwarp  0: the MAC address; 1: IPv4-mapped, which drivers do not have: softhca's addresses are on no interface where
//          programs could look for them
unsigned gid_count(const Config& config);
// With the empty entries (Config::gids).
unsigned gid_table_length(const Config& config);
bool gid_at(Fabric& fabric, uint32_t port_id, unsigned index, ibv_gid* gid);
// As ibv_gid_entry::gid_type: IBV_GID_TYPE_IB, _ROCE_V1, _ROCE_V2 (0 for iWARP's).
uint32_t gid_type_at(const Config& config, unsigned index);

// ib: never 0. roce, iwarp: 0.
uint16_t lid_of(Fabric& fabric, uint32_t port_id);
uint64_t node_guid_of(unsigned node, unsigned device);  // host order
// The Ethernet address (roce, iwarp).
void mac_of(Fabric& fabric, uint32_t port_id, uint8_t mac[6]);
// An address of the loopback network, which every process can bind without privilege: 127.(64 + node).device.port.
in_addr ip_of(uint32_t port_id);
// ib: P_Keys 0xffff and 0x8001; others: 0xffff.
uint16_t pkey_at(const Config& config, unsigned index);
unsigned pkey_count(const Config& config);

// The port that this address vector reaches from a port; 0: nobody has that address.
uint32_t resolve(Fabric& fabric, uint32_t from_port_id, const ibv_ah_attr& ah);
uint32_t port_with_lid(Fabric& fabric, uint16_t lid);
uint32_t port_with_gid(Fabric& fabric, const ibv_gid& gid);
// For the connection manager: 127.(64 + node)... exactly; any other local address is the first port of `node`; 0: not local.
uint32_t port_with_ip(Fabric& fabric, unsigned node, const sockaddr* address);

bool port_up(Fabric& fabric, uint32_t port_id);

// "softhca0", "softhca1", ...
std::string device_name(unsigned device);

}  // namespace softhca
