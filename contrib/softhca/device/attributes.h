// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a device and its ports say of themselves. The limits here are the ones that the create calls honour.
#include <infiniband/verbs.h>

#include "fabric/config.h"
#include "fabric/fabric.h"

namespace softhca {

constexpr unsigned kMaxSge = 16;
constexpr unsigned kMaxRdAtomic = 16;
constexpr uint64_t kDeviceMemoryBytes = 256 << 10;  // of a process

// Whether that device of each node has XRC.
bool has_xrc(const Config& config, unsigned device);
// Needs no fabric to be joined: `node` is this process's.
ibv_device_attr device_attributes(const Config& config, unsigned node, unsigned device);
ibv_device_attr_ex device_attributes_ex(const Config& config, unsigned node, unsigned device);
ibv_port_attr port_attributes(Fabric& fabric, uint32_t port_id);

ibv_node_type node_type_of(Personality personality);
ibv_transport_type transport_type_of(Personality personality);

}  // namespace softhca
