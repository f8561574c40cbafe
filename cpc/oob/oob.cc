// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob.h"

#include <string>
#include <utility>

namespace fabric::cpc {

Result<OobSettings> OobSettings::read(std::string_view name, const CpcParameters& parameters) {
  OobSettings settings;
  settings.priority = parameters.number(std::string(name) + "_priority");
  settings.resolve_timeout_ms = static_cast<unsigned>(parameters.number("rdmacm_resolve_timeout"));
  const char* const include = parameters.text("oob_if_include");
  const char* const exclude = parameters.text("oob_if_exclude");
  if (include != nullptr && exclude != nullptr) {
    return failure("btl_fabric_oob_if_include (" + std::string(include) + ") and btl_fabric_oob_if_exclude (" +
                   exclude + ") are both set: set one of them");
  }
  if (include == nullptr && exclude == nullptr) {
    return settings;
  }
  Result<AddressFilter> filter = AddressFilter::parse(include != nullptr ? include : exclude, include != nullptr);
  if (!filter) {
    return failure(std::string("btl_fabric_oob_if_") + (include != nullptr ? "include" : "exclude"), filter.error());
  }
  settings.addresses = std::move(*filter);
  return settings;
}

std::string OobSettings::remark() const {
  const auto local = local_addresses();
  const std::string idle = local ? addresses.idle_items(*local) : "";
  return idle.empty()
             ? ""
             : "btl_fabric_oob_if_include: this host has no address of " + idle + "; it has " + to_string(*local);
}

Status Oob::start(const CpcContext& context) {
  remark_ = settings_.remark();
  auto service = TcpService::start(context, traits(), settings_.addresses, settings_.resolve_timeout_ms);
  if (!service) {
    return tl::unexpected(std::move(service).error());
  }
  service_ = std::move(*service);
  return {};
}

Status Oob::serve(const PortContext& port) {
  if (port.address.link == Transport::kIwarp) {
    return failure("it connects queue pairs by their numbers, which iWARP does not have");
  }
  service_->serve(port);
  return {};
}

Result<std::unique_ptr<Channel>> Oob::open(const ChannelIdentity& identity, const PeerTarget& target, Message request) {
  return service_->open(identity, target.offer, target, std::move(request));
}

Result<std::unique_ptr<Cpc>> make_oob(const CpcParameters& parameters) {
  Result<OobSettings> settings = OobSettings::read(kOob.name, parameters);
  if (!settings) {
    return tl::unexpected(std::move(settings).error());
  }
  return std::make_unique<Oob>(std::move(*settings));
}

}  // namespace fabric::cpc
