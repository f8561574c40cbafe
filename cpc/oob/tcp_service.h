// SPDX-License-Identifier: BSD-3-Clause
//
// What oob and xoob do alike: listen on the host's addresses, and open channels over TCP. The channels carry messages;
// what they mean is the business of Connection.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "cpc/core/cpc_interface.h"
#include "cpc/loop/connect_throttle.h"
#include "cpc/loop/shortage_report.h"
#include "cpc/oob/address_filter.h"
#include "cpc/oob/held_requests.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/oob_channel.h"
#include "cpc/oob/oob_listener.h"
#include "cpc/oob/oob_streams.h"
#include "cpc/oob/path_questions.h"

namespace fabric::cpc {

/// Progress thread only, except for offer(), which never changes.
class TcpService {
 public:
  /// Listens on the addresses that `addresses` lets pass. The error says why this process cannot. `traits`: the CPC
  /// that the channels are of. `resolve_timeout_ms`: for the path to a peer, where it is asked for.
  [[nodiscard]] static Result<std::unique_ptr<TcpService>> start(const CpcContext& context, const CpcTraits& traits,
                                                                 const AddressFilter& addresses,
                                                                 unsigned resolve_timeout_ms);

  /// An OobOffer: what peers must be told to reach us.
  [[nodiscard]] const std::vector<std::byte>& offer() const noexcept { return offer_; }

  /// Connections of the port, which outlives this, are to come.
  void serve(const PortContext& port) { questions_.add(port); }

  /// Starts to open a channel to a peer that published `offer`. Attempts begin with different addresses, so that one
  /// that swallows everything or leads to somebody else does not stop them all.
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, std::span<const std::byte> offer,
                                                      const PeerTarget& target, Message request);

 private:
  TcpService(const CpcContext& context, const CpcTraits& traits, unsigned resolve_timeout_ms)
      : context_(context),
        throttle_(context.loop, context.settings->connect_limit),
        shortage_(context.on_shortage),
        questions_(context.loop, resolve_timeout_ms, context.on_remark),
        streams_(std::make_unique<OobStreams>(
            OobStreams::Environment{{context.loop, &throttle_, &shortage_, context.settings->connect_timeout_ms},
                                    traits,
                                    context.settings->token,
                                    context.settings->self,
                                    std::chrono::milliseconds(context.settings->stream_idle_ms),
                                    [this](std::unique_ptr<Channel> channel, Message request) {
                                      held_.add(std::move(channel), std::move(request));
                                    },
                                    &questions_})),
        held_(questions_, context_.on_request) {}
  [[nodiscard]] Result<std::vector<HostAddress>> choose_addresses(const AddressFilter& filter);

  CpcContext context_;
  std::vector<HostAddress> local_addresses_;  ///< all of them, used or not
  ConnectThrottle throttle_;                  ///< of the channels that we open
  ShortageReport shortage_;                   ///< of them and of the listener
  std::vector<std::byte> offer_;
  PathQuestions questions_;
  std::unique_ptr<OobListener> listener_;
  std::unique_ptr<OobStreams> streams_;
  HeldRequests held_;  ///< its channels go before their streams
};

}  // namespace fabric::cpc
