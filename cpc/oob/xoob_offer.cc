// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/xoob_offer.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "common/base/wire.h"
#include "common/ports/process_info.h"

namespace fabric::cpc {
namespace {

constexpr std::uint8_t kOfferVersion = 1;

}  // namespace

std::vector<std::byte> encode(const XoobOffer& offer) {
  assert(offer.listener.size() <= kMaxOfferBlob && offer.ports.size() <= kMaxPorts);
  ByteWriter to;
  to.put(kOfferVersion);
  to.put(static_cast<std::uint16_t>(offer.listener.size()));
  to.put_bytes(offer.listener);
  to.put(static_cast<std::uint8_t>(offer.ports.size()));
  for (const XoobPort& port : offer.ports) {
    to.put(port.index);
    to.put(port.domain.domain);
    to.put(port.domain.lid);
    to.put_bytes(std::as_bytes(std::span(port.domain.gid.raw)));
  }
  return to.take();
}

Result<XoobOffer> decode_xoob_offer(std::span<const std::byte> blob) {
  ByteReader from(blob);
  const auto version = from.get<std::uint8_t>();
  if (version != kOfferVersion) {
    return failure("xoob offer: version " + std::to_string(version) + ", we know " + std::to_string(kOfferVersion));
  }
  XoobOffer offer;
  const auto listener = from.take(from.get<std::uint16_t>());
  offer.listener.assign(listener.begin(), listener.end());
  const auto count = from.get<std::uint8_t>();
  if (count > kMaxPorts) {
    return failure("xoob offer: " + std::to_string(count) + " ports, more than " + std::to_string(kMaxPorts));
  }
  for (unsigned i = 0; i < count; ++i) {
    XoobPort port;
    port.index = from.get<std::uint16_t>();
    port.domain.domain = from.get<std::uint64_t>();
    port.domain.lid = from.get<std::uint16_t>();
    from.get_bytes(std::as_writable_bytes(std::span(port.domain.gid.raw)));
    offer.ports.push_back(port);
  }
  if (!from.ok() || from.remaining() != 0) {
    return failure("xoob offer: " + std::to_string(blob.size()) + " bytes are cut off or too long");
  }
  return offer;
}

Result<XrcDomainPort> domain_of(std::span<const std::byte> blob, std::uint16_t port) {
  const Result<XoobOffer> offer = decode_xoob_offer(blob);
  if (!offer) {
    return tl::unexpected(offer.error());
  }
  const auto found =
      std::find_if(offer->ports.begin(), offer->ports.end(), [&](const XoobPort& one) { return one.index == port; });
  if (found == offer->ports.end()) {
    return failure("xoob offer: it has no XRC domain for the peer's port " + std::to_string(port));
  }
  return found->domain;
}

}  // namespace fabric::cpc
