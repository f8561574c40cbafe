// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/manager/cpc_services.h"

#include <algorithm>
#include <utility>

namespace fabric::cpc {
namespace {

std::string name_of(const PortContext& port) {
  return port.device == nullptr
             ? "port " + std::to_string(port.index)
             : std::string(ibv_get_device_name(port.device->device)) + ":" + std::to_string(port.port_num);
}

/// Has a CPC serve a port. The error says why it cannot.
Status serve(Cpc& cpc, const PortContext& port) {
  if (port.index >= kMaxPorts) {
    return failure("its index is beyond " + std::to_string(kMaxPorts - 1));
  }
  if (!(cpc.traits().one_way ? port.queues->has_xrc() : port.queues->has_others())) {
    return failure(cpc.traits().one_way ? "it is for X queues, and btl_fabric_receive_queues has none"
                                        : "it makes no XRC queue pairs, and btl_fabric_receive_queues has X queues");
  }
  return cpc.serve(port);
}

}  // namespace

CpcServices::CpcServices(std::vector<std::unique_ptr<Cpc>> cpcs) {
  for (std::unique_ptr<Cpc>& cpc : cpcs) {
    services_.push_back({std::move(cpc), {}, 0, {}});
  }
}

/// One that does not run is no failure: the others may do.
void CpcServices::start(const CpcContext& context) {
  for (Service& service : services_) {
    if ((context.settings->cpcs & set_of(service.cpc->traits().kind)) == 0) {
      service.reason = "btl_fabric_cpc_include or cpc_exclude leaves it out";
    } else if (Status started = service.cpc->start(context); !started) {
      service.reason = std::move(started).error().text;
    }
  }
}

void CpcServices::stop() noexcept {
  for (Service& service : services_) {
    service.cpc->stop();
  }
}

ChannelOpener* CpcServices::opener(CpcKind kind) const noexcept {
  const auto found = std::find_if(services_.begin(), services_.end(),
                                  [&](const Service& one) { return one.cpc->traits().kind == kind; });
  return found == services_.end() || !found->reason.empty() ? nullptr : found->cpc.get();
}

void CpcServices::add(const PortContext& port) {
  for (Service& service : services_) {
    if (!service.reason.empty()) {
      continue;
    }
    if (Status served = serve(*service.cpc, port); served) {
      service.ports |= std::uint64_t{1} << port.index;
    } else {
      service.refusals += (service.refusals.empty() ? "" : "; ") + name_of(port) + ": " + served.error().text;
    }
  }
}

std::vector<CpcOffer> CpcServices::offers(std::span<const PortContext* const> ports) const {
  std::uint64_t wanted = 0;
  for (const PortContext* port : ports) {
    wanted |= port->index < kMaxPorts ? std::uint64_t{1} << port->index : 0;
  }
  std::vector<CpcOffer> offers;
  for (const Service& service : services_) {
    if (const std::uint64_t served = service.ports & wanted; served != 0) {
      offers.push_back({service.cpc->traits().kind, service.cpc->priority(), served, service.cpc->offer(served)});
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
      refusals.push_back({service.cpc->traits().kind, service.cpc->priority(), 0, {bytes.begin(), bytes.end()}});
    }
  }
  return refusals;
}

std::vector<std::string> CpcServices::remarks() const {
  std::vector<std::string> remarks;
  for (const Service& service : services_) {
    std::string remark = service.cpc->remark();
    if (!remark.empty() && std::find(remarks.begin(), remarks.end(), remark) == remarks.end()) {
      remarks.push_back(std::move(remark));
    }
  }
  return remarks;
}

}  // namespace fabric::cpc
