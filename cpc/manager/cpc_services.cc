// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/manager/cpc_services.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fabric::cpc {
namespace {

constexpr const char* kNotAllowed = "btl_fabric_cpc_include or cpc_exclude leaves it out";

std::string name_of(const PortContext& port) {
  return port.device == nullptr
             ? "port " + std::to_string(port.index)
             : std::string(ibv_get_device_name(port.device->device)) + ":" + std::to_string(port.port_num);
}

}  // namespace

bool has_xrc(const PortContext& port) {
  const std::vector<QueueSpec>& queues = port.queues->queues();
  return std::any_of(queues.begin(), queues.end(),
                     [](const QueueSpec& queue) { return queue.kind == QueueKind::kXrc; });
}

void CpcServices::start(event_base* loop, OnRequest on_request) {
  loop_ = loop;
  on_request_ = std::move(on_request);
  services_ = {{CpcKind::kOob, settings_.oob_priority, {}, 0, {}, {}, {}, {}},
               {CpcKind::kXoob, settings_.xoob_priority, {}, 0, {}, {}, {}, {}},
               {CpcKind::kRdmaCm, settings_.rdmacm_priority, {}, 0, {}, {}, {}, {}},
               {CpcKind::kIbCm, settings_.ibcm_priority, {}, 0, {}, {}, {}, {}}};
  for (Service& service : services_) {
    if ((settings_.cpcs & set_of(service.kind)) == 0) {
      service.reason = kNotAllowed;
    }
  }
  start_rdmacm(services_[2], rdmacm_);
  start_rdmacm(services_[3], ibcm_);
  start_oob(services_[0]);
}

Result<std::unique_ptr<Oob>> CpcServices::listen_for(CpcKind kind) {
  return Oob::start(loop_,
                    {kind, settings_.self, settings_.token, settings_.connect_timeout_ms, settings_.connect_limit,
                     settings_.oob_addresses},
                    on_request_);
}

/// One that does not run is no failure: the others may do.
void CpcServices::start_oob(Service& service) {
  if (!service.reason.empty()) {
    return;
  }
  auto oob = listen_for(service.kind);
  if (!oob) {
    service.reason = oob.error().text;
    return;
  }
  oob_ = std::move(*oob);
  service.blob = oob_->offer();
}

/// A host without the kernel's communication manager still has oob.
void CpcServices::start_rdmacm(Service& service, std::unique_ptr<RdmaCm>& rdmacm) {
  if (!service.reason.empty()) {
    return;
  }
  auto started = RdmaCm::start(loop_,
                               {service.kind, settings_.self, settings_.token, settings_.resolve_timeout_ms,
                                settings_.connect_timeout_ms, settings_.rdmacm_port, settings_.connect_limit},
                               on_request_);
  if (started) {
    rdmacm = std::move(*started);
  } else {
    service.reason = started.error().text;
  }
}

void CpcServices::stop() {
  ibcm_.reset();
  rdmacm_.reset();
  xoob_.reset();
  oob_.reset();
}

const ChannelOpener* CpcServices::opener(CpcKind kind) const noexcept {
  switch (kind) {
    case CpcKind::kOob:
      return oob_.get();
    case CpcKind::kRdmaCm:
      return rdmacm_.get();
    case CpcKind::kIbCm:
      return ibcm_.get();
    case CpcKind::kXoob:
      return xoob_.get();
  }
  return nullptr;
}

void CpcServices::add(const PortContext& port) {
  for (Service& service : services_) {
    if (!service.reason.empty()) {
      continue;
    }
    if (Status served = serve(service, port); served) {
      service.ports |= std::uint64_t{1} << port.index;
    } else {
      service.refusals += (service.refusals.empty() ? "" : "; ") + name_of(port) + ": " + served.error().text;
    }
  }
}

/// Readies a CPC for connections of `port`. The error says why that CPC cannot make them.
Status CpcServices::serve(Service& service, const PortContext& port) {
  if (port.index >= kMaxPorts) {
    return failure("its index is beyond " + std::to_string(kMaxPorts - 1));
  }
  if (service.kind == CpcKind::kXoob) {
    return serve_by_xoob(service, port);
  }
  if (has_xrc(port)) {
    return failure("it makes no XRC queue pairs, and btl_fabric_receive_queues has X queues");
  }
  if (service.kind == CpcKind::kOob) {
    return port.address.link == Transport::kIwarp
               ? Status(failure("it connects queue pairs by their numbers, which iWARP does not have"))
               : Status();
  }
  if (port.device == nullptr || port.handshakes == nullptr) {
    return failure("there is no device for the communication manager");
  }
  Result<CmAddress> listening = (service.kind == CpcKind::kIbCm ? ibcm_ : rdmacm_)->listen(port);
  if (!listening) {
    return tl::unexpected(std::move(listening).error());
  }
  service.listen.push_back(*listening);
  return {};
}

/// It listens from the first port on that it serves: most jobs have no X queues.
Status CpcServices::serve_by_xoob(Service& service, const PortContext& port) {
  if (!has_xrc(port)) {
    return failure("it is for X queues, and btl_fabric_receive_queues has none");
  }
  if (port.address.link == Transport::kIwarp) {
    return failure("iWARP has no XRC");
  }
  if (port.xrc_domain == 0) {
    return failure("the device has no XRC domain");
  }
  if (!xoob_) {
    auto listener = listen_for(service.kind);
    if (!listener) {
      return tl::unexpected(std::move(listener).error());
    }
    xoob_ = std::make_unique<Xoob>(std::move(*listener));
    service.blob = xoob_->listener_offer();
  }
  service.domains.push_back({port.index, {port.xrc_domain, port.address.lid, port.address.gid}});
  return {};
}

std::vector<CpcOffer> CpcServices::offers(std::span<const PortContext* const> ports) const {
  std::uint64_t wanted = 0;
  for (const PortContext* port : ports) {
    wanted |= port->index < kMaxPorts ? std::uint64_t{1} << port->index : 0;
  }
  std::vector<CpcOffer> offers;
  for (const Service& service : services_) {
    CpcOffer offer{service.kind, service.priority, service.ports & wanted, service.blob};
    if (service.kind == CpcKind::kXoob) {
      XoobOffer published{service.blob, {}};
      std::copy_if(service.domains.begin(), service.domains.end(), std::back_inserter(published.ports),
                   [&](const XoobPort& port) { return (offer.ports >> port.index & 1U) != 0; });
      offer.blob = encode(published);
    } else if (service.kind != CpcKind::kOob) {
      offer.blob = encode(service.listen);
    }
    if (offer.ports != 0) {
      offers.push_back(std::move(offer));
    }
  }
  return offers;
}

std::vector<CpcOffer> CpcServices::refusals() const {
  std::vector<CpcOffer> refusals;
  for (const Service& service : services_) {
    if (service.ports == 0) {
      const std::string& why = service.reason.empty() ? service.refusals : service.reason;
      const auto bytes = std::as_bytes(std::span(why)).first(std::min(why.size(), kMaxOfferBlob));
      refusals.push_back({service.kind, service.priority, 0, {bytes.begin(), bytes.end()}});
    }
  }
  return refusals;
}

}  // namespace fabric::cpc
