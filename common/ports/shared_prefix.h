// SPDX-License-Identifier: BSD-3-Clause
//
// InfiniBand subnets that have the same GID prefix, as all have that nobody gave one: ports are paired by it, and those of
// different subnets with the same prefix seem to reach each other.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/ports/port_scan.h"

namespace fabric {

/// Two ports that are on different subnets, though their GIDs say the same one.
struct SharedPrefix {
  std::string first;  ///< UsablePort::name()
  std::string second;
  Subnet prefix;
  std::string proof;  ///< why they must be on different subnets
};

/// The first two of these ports of one host, if there are any. Only what is certain counts, since two ports of one subnet with the
/// default prefix are nothing unusual: a subnet has one subnet manager, and no LID of it is given twice (InfiniBand Architecture
/// Specification 1.4, sections 3.10 and 4.1.3) but to functions of one adapter, which may share one. Two subnets whose managers
/// have the same LID, and gave the ports different ones, are not told from one.
[[nodiscard]] std::optional<SharedPrefix> find_shared_prefix(std::span<const UsablePort> ports);

}  // namespace fabric
