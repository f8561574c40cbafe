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

#include "cpc/cm/cm_events.h"
#include "cpc/cm/cm_ids.h"
#include "cpc/core/cpc_interface.h"
#include "cpc/rdmacm/rdmacm_channel.h"

namespace fabric::cpc {

inline constexpr CpcTraits kRdmaCm{CpcKind{3}, "rdmacm", true};
inline constexpr CpcTraits kIbCm{CpcKind{4}, "ibcm", true};

/// Of rdmacm and ibcm.
struct RdmaCmSettings {
  int priority = 30;
  unsigned resolve_timeout_ms = 2000;  ///< for the address of a peer, and again for the route to it
  std::uint16_t first_port = 0;        ///< rdmacm: port number to listen on, or the next that is free; 0: any

  /// From NAME_priority, rdmacm_port and rdmacm_resolve_timeout.
  [[nodiscard]] static RdmaCmSettings read(std::string_view name, const CpcParameters& parameters);
};

/// Progress thread only.
class RdmaCm final : public Cpc, private ChannelHandler {
 public:
  /// `traits`: kRdmaCm or kIbCm.
  RdmaCm(const CpcTraits& traits, const RdmaCmSettings& settings);
  ~RdmaCm() override;

  [[nodiscard]] Status start(const CpcContext& context) override;
  void stop() noexcept override;
  [[nodiscard]] Status serve(const PortContext& port) override;
  [[nodiscard]] std::vector<std::byte> offer(std::uint64_t ports) const override;
  [[nodiscard]] Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                      Message request) override;

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

  void on_listener_event(Listener& listener, const CmEvent& event);
  void admit(Listener& listener, CmId id, const CmMessage& request, std::uint32_t peer_qpn);
  [[nodiscard]] Status check(const Listener& listener, const CmMessage& request) const;
  void turn_away(const CmId& id, const std::string& why);
  void refuse(const CmId& id, const CmMessage& request, RefuseReason reason, const std::string& why);
  void drop(const Channel& channel);
  [[nodiscard]] std::optional<InterfaceAddress> find_ip(const PortContext& port) const;
  [[nodiscard]] Result<CmId> bound_id(CmEventHandler* context, CmSocketAddress address) const;
  [[nodiscard]] Status listen(Listener& listener) const;

  void on_message(Channel& channel, Message message) override;
  void on_lost(Channel& channel, std::string reason, bool confirm_taken) override;

  const bool native_;  ///< InfiniBand addressing: ibcm
  const RdmaCmSettings settings_;
  CpcContext context_;
  std::optional<ConnectThrottle> throttle_;
  CmEnvironment environment_;
  CmEvents events_;
  std::map<std::uint16_t, std::unique_ptr<Listener>> listeners_;  ///< by port index; ids go before events_
  std::map<ArrivalKey, Arrival> arrivals_;
};

[[nodiscard]] Result<std::unique_ptr<Cpc>> make_rdmacm(const CpcParameters& parameters);
[[nodiscard]] Result<std::unique_ptr<Cpc>> make_ibcm(const CpcParameters& parameters);

inline constexpr CpcRegistration kRdmaCmCpc{kRdmaCm, make_rdmacm};
inline constexpr CpcRegistration kIbCmCpc{kIbCm, make_ibcm};

}  // namespace fabric::cpc
