// SPDX-License-Identifier: BSD-3-Clause
//
// The oob CPC: connection set-up over TCP. It carries messages; what they mean is the business of Connection.
#pragma once

#include <memory>
#include <vector>

#include "common/base/result.h"
#include "cpc/core/cpc.h"
#include "cpc/loop/connect_throttle.h"
#include "cpc/oob/address_filter.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/oob_channel.h"
#include "cpc/oob/oob_listener.h"

namespace fabric::cpc {

/// Progress thread only, except for offer(), which never changes.
class Oob final : public ChannelOpener {
 public:
  struct Settings {
    CpcKind kind = CpcKind::kOob;  ///< which CPC its channels are: oob or xoob
    ProcessName self;
    JobToken token{};
    unsigned connect_timeout_ms = 10000;
    std::size_t limit = 128;  ///< sockets that we open, and again sockets that peers open, at once
    AddressFilter addresses;  ///< those of this host that are used
  };

  /// Listens. The error says why this process cannot. `on_request` is called for every channel that a peer opens.
  [[nodiscard]] static Result<std::unique_ptr<Oob>> start(event_base* loop, const Settings& settings,
                                                          OnRequest on_request);

  /// What peers must be told to reach us: the blob of the CpcOffer.
  [[nodiscard]] const std::vector<std::byte>& offer() const noexcept { return offer_; }

  /// Starts to open a channel to `target`. Attempts begin with different addresses, so that one that swallows
  /// everything or leads to somebody else does not stop them all.
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) const override;

 private:
  [[nodiscard]] Result<std::vector<HostAddress>> choose_addresses();
  Oob(event_base* loop, const Settings& settings) : loop_(loop), settings_(settings), throttle_(loop, settings.limit) {}

  event_base* loop_;
  Settings settings_;
  std::vector<HostAddress> local_addresses_;  ///< all of them, used or not
  mutable ConnectThrottle throttle_;          ///< of the channels that we open
  std::vector<std::byte> offer_;
  std::unique_ptr<OobListener> listener_;
};

}  // namespace fabric::cpc
