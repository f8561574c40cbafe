// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/shared_prefix.h"

#include "common/ports/port_pairing.h"

namespace fabric {
namespace {

/// LIDs of both: each has 2^lmc of them.
bool share_a_lid(const UsablePort& a, const UsablePort& b) noexcept {
  const unsigned first = a.address.lid;
  const unsigned second = b.address.lid;
  return first != 0 && second != 0 && first < second + (1U << b.lmc) && second < first + (1U << a.lmc);
}

/// They may be one port, seen twice: virtual functions have the LID of their physical one. Adapters are known by the GUID that all
/// their functions have.
bool may_be_one(const UsablePort& a, const UsablePort& b) noexcept {
  return a.device != b.device && a.device->attributes.sys_image_guid == b.device->attributes.sys_image_guid;
}

/// Empty: they may be on one subnet.
std::string proof_for(const UsablePort& a, const UsablePort& b) {
  if (a.sm_lid != 0 && b.sm_lid != 0 && a.sm_lid != b.sm_lid) {
    return "their subnet managers have LIDs " + std::to_string(a.sm_lid) + " and " + std::to_string(b.sm_lid) +
           ", and a subnet has one";
  }
  if (share_a_lid(a, b) && !a.needs_grh && !b.needs_grh && !may_be_one(a, b)) {
    return "their LIDs are " + std::to_string(a.address.lid) + " and " + std::to_string(b.address.lid) +
           (a.address.lid == b.address.lid ? "" : " (the first of several)") + ", and a subnet has each LID once";
  }
  return {};
}

}  // namespace

std::optional<SharedPrefix> find_shared_prefix(std::span<const UsablePort> ports) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    for (std::size_t j = i + 1; j < ports.size(); ++j) {
      const UsablePort& a = ports[i];
      const UsablePort& b = ports[j];
      if (a.address.link != Transport::kInfiniBand || !reachable(a.address, b.address, false)) {
        continue;
      }
      if (std::string proof = proof_for(a, b); !proof.empty()) {
        return SharedPrefix{a.name(), b.name(), a.address.subnet, std::move(proof)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace fabric
