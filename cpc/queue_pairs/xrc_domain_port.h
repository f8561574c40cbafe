// SPDX-License-Identifier: BSD-3-Clause
//
// The other end of an XRC sender: a port of a device that an XRC domain is on.
#pragma once

#include <compare>
#include <cstdint>

#include "common/ports/port_address.h"

namespace fabric::cpc {

/// Names a port of a device that an XRC domain is on, wherever it is. Domains of devices on different nodes may have one
/// name (their session directories may be one, on a network file system), but then the ports' addresses differ.
struct XrcDomainPort {
  std::uint64_t domain = 0;
  std::uint16_t lid = 0;
  Gid gid;
  auto operator<=>(const XrcDomainPort&) const = default;
};

}  // namespace fabric::cpc
