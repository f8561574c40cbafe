// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

Result<std::unique_ptr<Oob>> Oob::start(event_base* loop, const Settings& settings, OnRequest on_request) {
  assert_on_progress_thread();
  std::unique_ptr<Oob> oob(new Oob(loop, settings));
  auto used = oob->choose_addresses();
  if (!used) {
    return tl::unexpected(std::move(used).error());
  }
  OobListener::Settings listening{
      settings.kind, settings.token, settings.self, settings.connect_timeout_ms, settings.limit, {}};
  if (!settings.addresses.is_open()) {
    listening.only = *used;
  }
  auto listener = OobListener::open(loop, std::move(listening), std::move(on_request));
  if (!listener) {
    return failure("listening for peers", listener.error());
  }
  oob->listener_ = std::move(*listener);
  oob->offer_ = encode(OobOffer{oob->listener_->port_v4(), oob->listener_->port_v6(), std::move(*used)});
  return oob;
}

/// Notes all addresses of this host, and gives those that the user lets be used.
Result<std::vector<HostAddress>> Oob::choose_addresses() {
  const auto addresses = local_addresses();
  if (!addresses) {
    return failure("listening for peers", addresses.error());
  }
  std::vector<HostAddress> used;
  std::string passed_over;
  for (const LocalAddress& one : *addresses) {
    local_addresses_.push_back(one.host);
    if (settings_.addresses.passes(one.interface, one.host)) {
      used.push_back(one.host);
    } else {
      passed_over += (passed_over.empty() ? "" : ", ") + one.interface + " " + to_string(one.host) + "/" +
                     std::to_string(one.host.prefix_bits);
    }
  }
  if (used.empty()) {
    return failure(passed_over.empty() ? "this host has no IP address"
                                       : "btl_fabric_oob_if_include or oob_if_exclude (" + settings_.addresses.text() +
                                             ") leaves no address of this host, which has " + passed_over);
  }
  return used;
}

Result<std::unique_ptr<Channel>> Oob::open(const ChannelIdentity& identity, const PeerTarget& target,
                                           Message request) const {
  assert_on_progress_thread();
  const Result<OobOffer> offer = decode_oob_offer(target.offer);
  if (!offer) {
    return tl::unexpected(offer.error());
  }
  std::vector<SocketAddress> addresses = addresses_to_try(*offer, local_addresses_, target.same_node);
  if (!addresses.empty() && identity.attempt > 0) {
    const std::size_t first = (identity.attempt - 1) % addresses.size();
    std::rotate(addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(first), addresses.end());
  }
  return std::make_unique<OobChannel>(loop_, throttle_, settings_.kind, identity, std::move(addresses),
                                      settings_.connect_timeout_ms, std::move(request));
}

}  // namespace fabric::cpc
