// SPDX-License-Identifier: BSD-3-Clause
//
// What the CPCs of this process do for each of its ports: which of them serve it, what peers must be told for that, and why the
// others do not.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ports/process_info.h"
#include "cpc/core/channel.h"
#include "cpc/manager/connection_manager.h"
#include "cpc/oob/oob.h"
#include "cpc/oob/xoob.h"
#include "cpc/rdmacm/rdmacm.h"

namespace fabric::cpc {

/// True if the port has X queues, so that only a CPC for these serves it.
[[nodiscard]] bool has_xrc(const PortContext& port);

/// The progress thread's, except for offers() and refusals(): these are the main thread's, which waits while start() and
/// add() run.
class CpcServices {
 public:
  /// `settings` outlives this.
  explicit CpcServices(const ManagerSettings& settings) : settings_(settings) {}

  /// Starts every CPC that can run on this host and that the user lets be used. `on_request` gets the channels of peers.
  void start(event_base* loop, OnRequest on_request);
  /// Drops every channel and listener without a word.
  void stop();
  /// Has every CPC that can serve the port from now on.
  void add(const PortContext& port);
  /// Null if the CPC does not run.
  [[nodiscard]] const ChannelOpener* opener(CpcKind kind) const noexcept;

  /// See ConnectionManager.
  [[nodiscard]] std::vector<CpcOffer> offers(std::span<const PortContext* const> ports) const;
  [[nodiscard]] std::vector<CpcOffer> refusals() const;

 private:
  /// What a CPC can do.
  struct Service {
    CpcKind kind;
    std::uint8_t priority;
    std::string reason;             ///< why the CPC does not run; empty if it does
    std::uint64_t ports = 0;        ///< bit i: it serves the port with index i
    std::vector<std::byte> blob;    ///< oob, xoob: where it listens
    std::vector<XoobPort> domains;  ///< xoob: of the ports that it serves
    std::vector<CmAddress> listen;  ///< rdmacm, ibcm: where they listen
    std::string refusals;           ///< "rxe0:1: ...; siw0:1: ..."
  };

  [[nodiscard]] Result<std::unique_ptr<Oob>> listen_for(CpcKind kind);
  void start_oob(Service& service);
  void start_rdmacm(Service& service, std::unique_ptr<RdmaCm>& rdmacm);
  [[nodiscard]] Status serve(Service& service, const PortContext& port);
  [[nodiscard]] Status serve_by_xoob(Service& service, const PortContext& port);

  const ManagerSettings& settings_;
  event_base* loop_ = nullptr;
  OnRequest on_request_;
  std::vector<Service> services_;
  std::unique_ptr<Oob> oob_;
  std::unique_ptr<Xoob> xoob_;  ///< from the first port on that has X queues
  std::unique_ptr<RdmaCm> rdmacm_;
  std::unique_ptr<RdmaCm> ibcm_;
};

}  // namespace fabric::cpc
