// SPDX-License-Identifier: BSD-3-Clause
//
// What the CPCs of this process do for each of its ports: which of them serve it, what peers must be told for that, and
// why the others do not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ports/process_info.h"
#include "cpc/core/cpc_interface.h"

namespace fabric::cpc {

/// The progress thread's, except for offers(), refusals() and remarks(): these are the main thread's, which waits while start() and
/// add() run.
class CpcServices {
 public:
  explicit CpcServices(std::vector<std::unique_ptr<Cpc>> cpcs);

  /// Starts every CPC that can run on this host and that the user lets be used.
  void start(const CpcContext& context);
  /// Drops every listener; nobody is told. Channels are gone by then.
  void stop() noexcept;
  /// Has every CPC that can serve the port from now on.
  void add(const PortContext& port);
  /// Null if the CPC does not run.
  [[nodiscard]] ChannelOpener* opener(CpcKind kind) const noexcept;

  /// See ConnectionManager.
  [[nodiscard]] std::vector<CpcOffer> offers(std::span<const PortContext* const> ports) const;
  [[nodiscard]] std::vector<CpcOffer> refusals() const;
  [[nodiscard]] std::vector<std::string> remarks() const;

 private:
  /// A CPC, and what it can do.
  struct Service {
    std::unique_ptr<Cpc> cpc;
    std::string reason;       ///< why the CPC does not run; empty if it does
    std::uint64_t ports = 0;  ///< bit i: it serves the port with index i
    std::string refusals;     ///< "rxe0:1: ...; siw0:1: ..."
  };

  std::vector<Service> services_;
};

}  // namespace fabric::cpc
