// SPDX-License-Identifier: BSD-3-Clause
//
// The main thread's handle on connection set-up: owns the progress thread, the connections and the CPCs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "common/ports/process_info.h"
#include "cpc/core/cpc.h"
#include "cpc/core/cpc_names.h"
#include "cpc/oob/address_filter.h"

namespace fabric::cpc {

class Trace;

/// Limits and settings of connection set-up, from MCA parameters.
struct ManagerSettings {
  ProcessName self;
  JobToken token{};                       ///< ours: what peers must present
  unsigned connect_retries = 10;          ///< further attempts after the first, each over all addresses of the peer
  unsigned connect_timeout_ms = 10000;    ///< for a TCP connection to be accepted, and for a stranger to say who it is
  unsigned handshake_timeout_ms = 60000;  ///< for a peer that broke off after our reply to come back
  std::size_t connect_limit = 128;        ///< connections that a process opens at once; oob: and lets peers open
  AddressFilter oob_addresses;            ///< those of this host that oob uses
  std::uint8_t oob_priority = 50;
  std::uint8_t xoob_priority = 60;
  std::uint8_t rdmacm_priority = 30;
  std::uint8_t ibcm_priority = 20;
  CpcSet cpcs = kEveryCpc;             ///< those that the user lets be used
  unsigned resolve_timeout_ms = 2000;  ///< for the address of a peer, and again for the route to it
  std::uint16_t rdmacm_port = 0;       ///< first port number to listen on; 0: any
  Trace* trace = nullptr;              ///< hears of every transition; outlives the manager. Null: none is kept
};

/// All functions are for the main thread and never wait, except add_port() and the destructor.
class ConnectionManager {
 public:
  /// Starts the progress thread, with a listener for every CPC.
  [[nodiscard]] static Result<std::unique_ptr<ConnectionManager>> start(ManagerSettings settings, QueuePairMaker maker,
                                                                        XrcMaker xrc_maker = make_xrc_queue_pairs());

  /// Stops the thread, destroys all queue pairs and drops every connection without a word to the peer.
  ~ConnectionManager();

  /// Serves `port` from now on: its connections and its device's asynchronous events (of each device once). Waits until
  /// every CPC that can listens on it.
  void add_port(const PortContext& port);

  /// What peers have to be told to connect to these ports (PortContext::index gives the mask bits).
  [[nodiscard]] std::vector<CpcOffer> offers(std::span<const PortContext* const> ports) const;

  /// For each CPC that serves no port an offer for none, whose blob says why: for the message of a peer that finds no way.
  [[nodiscard]] std::vector<CpcOffer> refusals() const;

  /// Queues a command for the progress thread and wakes it.
  void submit(Command command);

  /// True if take_upcalls() would return something: one relaxed load, for the packet path.
  [[nodiscard]] bool has_upcalls() const noexcept;
  /// Everything that the progress thread had to say, in order.
  [[nodiscard]] std::vector<Upcall> take_upcalls();

 private:
  class Impl;
  explicit ConnectionManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The CPC that both sides choose for a connection between port `our_port` of `ours` and `their_port` of `theirs`: of
/// the kinds that both offer for these ports the one with the highest priority (of either side), of equals the lowest
/// CpcKind. Null if there is none. Points into `theirs`.
[[nodiscard]] const CpcOffer* choose_cpc(const ProcessInfo& ours, std::uint16_t our_port, const ProcessInfo& theirs,
                                         std::uint16_t their_port) noexcept;

/// Why there is none: "oob: not on our side (...); rdmacm: not on the peer's side (...)".
[[nodiscard]] std::string why_no_cpc(const ProcessInfo& ours, std::uint16_t our_port, const ProcessInfo& theirs,
                                     std::uint16_t their_port);

}  // namespace fabric::cpc
