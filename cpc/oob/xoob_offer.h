// SPDX-License-Identifier: BSD-3-Clause
//
// What the xoob CPC of a process publishes: where it listens, and the XRC domains that its ports are in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "cpc/queue_pairs/xrc_domain_port.h"

namespace fabric::cpc {

/// A port of a process, and the XRC domain of its device.
struct XoobPort {
  std::uint16_t index = 0;
  XrcDomainPort domain;
  bool operator==(const XoobPort&) const = default;
};

/// What the xoob CPC of a process publishes (the blob of its CpcOffer).
struct XoobOffer {
  std::vector<std::byte> listener;  ///< an OobOffer
  std::vector<XoobPort> ports;      ///< at most kMaxPorts
  bool operator==(const XoobOffer&) const = default;
};

/// The wire form: version, length of the listener's offer (2 bytes) and the offer, count of ports, then index (2), domain
/// (8), lid (2) and gid (16) of each. Big-endian.
[[nodiscard]] std::vector<std::byte> encode(const XoobOffer& offer);

/// Decodes what a peer published. The error says which field was wrong.
[[nodiscard]] Result<XoobOffer> decode_xoob_offer(std::span<const std::byte> blob);

/// The XRC domain of a peer's port, from what the peer published.
[[nodiscard]] Result<XrcDomainPort> domain_of(std::span<const std::byte> blob, std::uint16_t port);

}  // namespace fabric::cpc
