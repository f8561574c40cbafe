// SPDX-License-Identifier: BSD-3-Clause
//
// The main thread's half of a process, as the checker sees it: it hears upcalls and completions, says commands, and does
// what the application asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cpc/core/cpc.h"
#include "test/model/digest.h"
#include "test/model/fabric.h"
#include "test/model/ledger.h"

namespace fabric::model {

/// What a main thread has at hand. Processes are called by their ranks.
struct MainEnvironment {
  std::uint8_t self = 0;
  Fabric& fabric;
  Ledger& ledger;
  Fault& fault;
  std::function<void(cpc::Command)> submit;
  std::function<cpc::PeerTarget(std::uint8_t peer)> target;
};

class MainHalf : public Completions {
 public:
  MainHalf() = default;
  MainHalf(const MainHalf&) = delete;
  MainHalf& operator=(const MainHalf&) = delete;
  virtual ~MainHalf() = default;

  virtual void on_upcall(cpc::Upcall upcall) = 0;

  // The application
  /// Sends a message, if the BTL accepts it: then the ledger says so.
  virtual void send(std::uint8_t peer) = 0;
  /// There is an endpoint for the peer, and it can be closed.
  [[nodiscard]] virtual bool can_close(std::uint8_t peer) const = 0;
  /// Open MPI's del_procs.
  virtual void close(std::uint8_t peer) = 0;

  /// Nothing happens by itself any more: what is still awaited, or "".
  [[nodiscard]] virtual std::string unsettled() const = 0;
  /// The connection with the peer has failed, and the upper layer knows.
  [[nodiscard]] virtual bool has_failed(std::uint8_t peer) const = 0;
  virtual void add_to(Digest& digest) const = 0;
};

}  // namespace fabric::model
