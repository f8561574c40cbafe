// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/port_context.h"

#include <unistd.h>

#include "common/ports/port_paths.h"

namespace fabric::cpc {

PortContext context_of(const UsablePort& port, std::uint16_t index) {
  PortContext context;
  context.index = index;
  context.device = port.device->context.get();
  context.pd = port.device->pd.get();
  context.limits = port.device->attributes;
  context.port_num = port.port_num;
  context.gid_index = port.gid_index;
  context.needs_grh = port.needs_grh;
  context.pkey = port.pkey;
  context.address = port.address;
  context.path_bits = port.path_bits;
  context.flow_label = flow_label(static_cast<std::uint32_t>(getpid()), port.paths, port.address.path);
  context.ip = port.ip;
  context.settings.pkey_index = port.pkey_index;
  return context;
}

}  // namespace fabric::cpc
