// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/xoob.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fabric::cpc {

Status Xoob::start(const CpcContext& context) {
  context_ = context;
  remark_ = settings_.remark();
  return {};
}

Status Xoob::serve(const PortContext& port) {
  if (port.address.link == Transport::kIwarp) {
    return failure("iWARP has no XRC");
  }
  if (port.xrc_domain == 0) {
    return failure("the device has no XRC domain");
  }
  if (!service_) {
    auto service = TcpService::start(context_, traits(), settings_.addresses, settings_.resolve_timeout_ms);
    if (!service) {
      return tl::unexpected(std::move(service).error());
    }
    service_ = std::move(*service);
  }
  service_->serve(port);
  ports_.push_back({port.index, {port.xrc_domain, port.address.lid, port.address.gid}});
  return {};
}

std::vector<std::byte> Xoob::offer(std::uint64_t ports) const {
  XoobOffer published{service_->offer(), {}};
  std::copy_if(ports_.begin(), ports_.end(), std::back_inserter(published.ports),
               [&](const XoobPort& port) { return (ports >> port.index & 1U) != 0; });
  return encode(published);
}

Result<std::unique_ptr<Channel>> Xoob::open(const ChannelIdentity& identity, const PeerTarget& target,
                                            Message request) {
  const Result<XoobOffer> offer = decode_xoob_offer(target.offer);
  if (!offer) {
    return tl::unexpected(offer.error());
  }
  return service_->open(identity, offer->listener, target, std::move(request));
}

Result<std::unique_ptr<Cpc>> make_xoob(const CpcParameters& parameters) {
  Result<OobSettings> settings = OobSettings::read(kXoob.name, parameters);
  if (!settings) {
    return tl::unexpected(std::move(settings).error());
  }
  return std::make_unique<Xoob>(std::move(*settings));
}

}  // namespace fabric::cpc
