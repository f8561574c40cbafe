// SPDX-License-Identifier: BSD-3-Clause
//
// Connects to other processes of the doctor as the component would: by its own connection manager, with real queue pairs, by
// whatever connection method is to be tried.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/ports/port_scan.h"
#include "common/ports/process_info.h"
#include "contrib/fabric_doctor/job/wire.h"
#include "contrib/fabric_doctor/parameters.h"
#include "cpc/manager/connection_manager.h"

namespace fabric::doctor {

class Connector {
 public:
  /// Of the process of this rank, on these ports. The error: what they lack.
  [[nodiscard]] static Result<std::unique_ptr<Connector>> make(std::uint32_t rank, const std::vector<UsablePort>& ports,
                                                               const Parameters& parameters);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// What peers have to know, as the component would publish it.
  [[nodiscard]] const ProcessInfo& info() const noexcept { return info_; }
  [[nodiscard]] const UsablePort& port(std::size_t index) const noexcept { return ports_[index]->usable; }

  /// Which connection is to be tried.
  struct Attempt {
    std::uint32_t peer = 0;
    std::uint16_t our_port = 0;
    std::uint16_t their_port = 0;
    CpcKind kind{};
    bool is_ours = false;  ///< this side asks for it
    bool is_same_host = false;
  };
  /// A wire to a peer that makes the same attempt at the same time. Wait for it to end, whatever comes of it, before the next.
  [[nodiscard]] Result<Wire*> connect(const Attempt& attempt, const ProcessInfo& peer);
  /// Takes it down.
  void close(Wire& wire);
  /// Names of devices that have failed since this began. Connections on their ports fail at once.
  [[nodiscard]] std::vector<std::string> lost_devices() const;

 private:
  struct Port {
    UsablePort usable;
    std::unique_ptr<CompletionQueueSet> completion_queues;
    std::unique_ptr<cpc::HandshakeSlab> handshakes;
    cpc::PortContext context;
  };
  using WireKey = std::pair<cpc::ConnectionKey, cpc::LinkNumber>;

  Connector() = default;
  void add_port(const UsablePort& usable, const Parameters& parameters);
  [[nodiscard]] Status start(const Parameters& parameters);
  [[nodiscard]] bool is_lost(std::uint16_t port) const noexcept;
  [[nodiscard]] std::string why_lost(std::uint16_t port) const;
  void pump();
  void take(const ibv_wc& completion, const Port& port);
  void sweep();
  Wire& wire_of(const cpc::ConnectionKey& key, cpc::LinkNumber link);

  void on(const cpc::PostReceives& upcall);
  void on(const cpc::Linked& upcall);
  void on(const cpc::Connected& upcall);
  void on(const cpc::PeerLeft& upcall);
  void on(const cpc::Failed& upcall);
  void on(const cpc::Flushing& upcall);
  void on(const cpc::QueuePairsGone& upcall);
  template <class Other>
  void on(const Other& /*upcall*/) {}

  ReceiveQueues queues_;
  cpc::ConnectionSettings settings_;
  ProcessInfo info_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::map<cpc::ConnectionKey, cpc::LinkNumber> newest_;  ///< used or heard of
  std::map<cpc::ConnectionKey, cpc::LinkNumber> used_;    ///< by connect()
  std::map<WireKey, std::unique_ptr<Wire>> wires_;
  std::map<cpc::ConnectionKey, std::pair<cpc::LinkNumber, std::string>> failures_;  ///< the last of each
  std::set<std::uint32_t> early_cts_;  ///< queue pairs over which CTS has come before their Linked
  const Wire* in_use_ = nullptr;       ///< all others are destroyed as soon as they are over
  std::unique_ptr<cpc::ConnectionManager> manager_;
};

}  // namespace fabric::doctor
