// SPDX-License-Identifier: BSD-3-Clause
//
// The rdmacm and ibcm CPCs: connection set-up by the kernel's communication manager, through librdmacm. rdmacm addresses
// ports by IP (RoCE, iWARP, InfiniBand with IPoIB), ibcm by GID (AF_IB, InfiniBand only). They differ in nothing else.
//
// The progress thread answers every REQ by itself: the kernel gives up one that is not answered within a minute or so,
// and a main thread may compute for longer. That is why these CPCs exchange CTS afterwards.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "cpc/core/channel.h"
#include "cpc/rdmacm/cm_ids.h"
#include "cpc/rdmacm/rdmacm_channel.h"

namespace fabric::cpc {

/// Progress thread only.
class RdmaCm final : public ChannelOpener, private ChannelHandler {
 public:
  struct Settings {
    CpcKind kind = CpcKind::kRdmaCm;
    ProcessName self;
    JobToken token{};
    unsigned resolve_timeout_ms = 2000;
    unsigned arrival_timeout_ms = 10000;  ///< for the rest of a peer's REQs after the first
    std::uint16_t first_port = 0;         ///< port number to listen on, or the next that is free; 0: any
    std::size_t limit = 128;              ///< channels that are opened at once, until they are answered
  };

  [[nodiscard]] static Result<std::unique_ptr<RdmaCm>> start(event_base* loop, const Settings& settings,
                                                             OnRequest on_request);
  ~RdmaCm() override;

  /// Listens on a port. The error says why this CPC cannot serve it.
  [[nodiscard]] Result<CmAddress> listen(const PortContext& port);

  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) const override;

 private:
  /// The listening id of a port.
  struct Listener final : CmEventHandler {
    Listener(RdmaCm& rdmacm) noexcept : owner(rdmacm) {}  // NOLINT: not a conversion
    void on_event(const CmEvent& event) override { owner.on_listener_event(*this, event); }
    RdmaCm& owner;
    CmPort port;
    CmId id;
  };
  /// A channel some of whose REQs have arrived.
  struct Arrival {
    std::unique_ptr<RdmaCmChannel> channel;
    std::unique_ptr<Timer> timer;
  };
  using ArrivalKey = std::tuple<ProcessName, std::uint16_t, std::uint16_t, std::uint32_t, std::uint32_t>;

  RdmaCm(event_base* loop, const Settings& settings, OnRequest on_request);
  [[nodiscard]] Status open_events();
  void on_readable();
  void on_listener_event(Listener& listener, const CmEvent& event);
  void admit(Listener& listener, CmId id, const CmMessage& request, std::uint32_t peer_qpn);
  [[nodiscard]] Status check(const Listener& listener, const CmMessage& request) const;
  void turn_away(const CmId& id, const CmMessage* request, const std::string& why);
  void drop(const Channel& channel);
  [[nodiscard]] std::optional<InterfaceAddress> find_ip(const PortContext& port) const;
  [[nodiscard]] Result<CmId> bound_id(CmEventHandler* context, CmSocketAddress address) const;
  [[nodiscard]] Status listen(Listener& listener) const;
  [[nodiscard]] const char* name() const noexcept;

  void on_message(Channel& channel, Message message) override;
  void on_lost(Channel& channel, std::string reason, bool confirm_taken) override;

  Settings settings_;
  OnRequest on_request_;
  ConnectThrottle throttle_;
  CmEnvironment environment_;
  CmEventChannel events_;
  std::unique_ptr<Watch> watch_;
  std::unordered_map<std::uint16_t, std::unique_ptr<Listener>> listeners_;  ///< by port index; ids go before events_
  std::map<ArrivalKey, Arrival> arrivals_;
};

}  // namespace fabric::cpc
