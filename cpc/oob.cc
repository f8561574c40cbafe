// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob.h"

#include <algorithm>
#include <utility>

#include "cpc/progress_thread.h"

namespace fabric::cpc {

Result<std::unique_ptr<Oob>> Oob::start(event_base* loop, const Settings& settings, OnRequest on_request) {
  assert_on_progress_thread();
  std::unique_ptr<Oob> oob(new Oob(loop, settings));
  auto listener =
      OobListener::open(loop, {settings.token, settings.self, settings.connect_timeout_ms}, std::move(on_request));
  if (!listener) {
    return failure("starting the oob connection method", listener.error());
  }
  auto addresses = local_addresses();
  if (!addresses) {
    return failure("starting the oob connection method", addresses.error());
  }
  oob->listener_ = std::move(*listener);
  oob->local_addresses_ = std::move(*addresses);
  oob->offer_ = encode(OobOffer{oob->listener_->port_v4(), oob->listener_->port_v6(), oob->local_addresses_});
  return oob;
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
  return std::make_unique<OobChannel>(loop_, identity, std::move(addresses), settings_.connect_timeout_ms,
                                      std::move(request));
}

}  // namespace fabric::cpc
