// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/tcp_service.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

Result<std::unique_ptr<TcpService>> TcpService::start(const CpcContext& context, const CpcTraits& traits,
                                                      const AddressFilter& addresses, unsigned resolve_timeout_ms) {
  assert_on_progress_thread();
  std::unique_ptr<TcpService> service(new TcpService(context, traits, resolve_timeout_ms));
  auto used = service->choose_addresses(addresses);
  if (!used) {
    return tl::unexpected(std::move(used).error());
  }
  const ConnectionSettings& settings = *context.settings;
  OobListener::Settings listening{service->shortage_, settings.connect_timeout_ms, settings.connect_limit, {}};
  if (!addresses.is_open()) {
    listening.only = *used;
  }
  auto listener = OobListener::open(context.loop, listening, *service->streams_);
  if (!listener) {
    return failure("listening for peers", listener.error());
  }
  service->listener_ = std::move(*listener);
  service->offer_ = encode(OobOffer{service->listener_->port_v4(), service->listener_->port_v6(), std::move(*used)});
  return service;
}

/// Notes all addresses of this host, and gives those that the user lets be used.
Result<std::vector<HostAddress>> TcpService::choose_addresses(const AddressFilter& filter) {
  const auto addresses = local_addresses();
  if (!addresses) {
    return failure("listening for peers", addresses.error());
  }
  for (const LocalAddress& one : *addresses) {
    local_addresses_.push_back(one.host);
  }
  std::vector<HostAddress> used = filter.choose(*addresses);
  if (used.empty()) {
    return failure(addresses->empty() ? "this host has no IP address"
                                      : "btl_fabric_oob_if_include or oob_if_exclude (" + filter.text() +
                                            ") leaves no address of this host, which has " + to_string(*addresses));
  }
  return used;
}

Result<std::unique_ptr<Channel>> TcpService::open(const ChannelIdentity& identity, std::span<const std::byte> offer,
                                                  const PeerTarget& target, Message request) {
  assert_on_progress_thread();
  const Result<OobOffer> published = decode_oob_offer(offer);
  if (!published) {
    return tl::unexpected(published.error());
  }
  std::vector<SocketAddress> addresses = addresses_to_try(*published, local_addresses_, target.same_node);
  if (!addresses.empty() && identity.attempt > 0) {
    const std::size_t first = (identity.attempt - 1) % addresses.size();
    std::rotate(addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(first), addresses.end());
  }
  return std::make_unique<OobChannel>(*streams_, identity, std::move(addresses), target.gid, std::move(request));
}

}  // namespace fabric::cpc
