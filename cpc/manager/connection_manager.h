// SPDX-License-Identifier: BSD-3-Clause
//
// The main thread's handle on connection set-up: owns the progress thread, the connections and the CPCs.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "common/ports/process_info.h"
#include "cpc/core/cpc.h"
#include "cpc/core/cpc_interface.h"
#include "cpc/core/settings.h"

namespace fabric::cpc {

/// All functions are for the main thread and never wait, except add_port() and the destructor.
class ConnectionManager {
 public:
  /// Starts the progress thread, and on it those of `cpcs` that the settings allow.
  [[nodiscard]] static Result<std::unique_ptr<ConnectionManager>> start(ConnectionSettings settings,
                                                                        std::vector<std::unique_ptr<Cpc>> cpcs,
                                                                        QueuePairMaker maker,
                                                                        XrcMaker xrc_maker = make_xrc_queue_pairs());

  /// Stops the thread, destroys all queue pairs and drops every connection; no peer is told.
  ~ConnectionManager();

  /// Serves `port` from now on: its connections and its device's asynchronous events (of each device once). Waits until
  /// every CPC that can listens on it.
  void add_port(const PortContext& port);

  /// What peers have to be told to connect to these ports (PortContext::index gives the mask bits).
  [[nodiscard]] std::vector<CpcOffer> offers(std::span<const PortContext* const> ports) const;

  /// For each CPC that serves no port an offer for none, whose blob says why: for the message of a peer that finds no way.
  [[nodiscard]] std::vector<CpcOffer> refusals() const;

  /// What of the user's settings does nothing on this host, once ports are added; each once, whatever CPCs it concerns.
  [[nodiscard]] std::vector<std::string> remarks() const;

  /// Queues a command for the progress thread and wakes it.
  void submit(Command command);

  /// ConnectionSettings::tick is called from now on. For any thread; allocates nothing.
  void start_ticks() noexcept;

  /// True if take_upcalls() would return something: one relaxed load, for the packet path.
  [[nodiscard]] bool has_upcalls() const noexcept { return has_upcalls_.load(std::memory_order_relaxed); }
  /// Makes has_upcalls() true, though there may be none. For any thread, and for signal handlers.
  void nudge() noexcept;
  /// True once after another program has asked what the process waits for: answer().
  [[nodiscard]] bool take_question() noexcept;
  /// True once after each ConnectionSettings::look_ms: somebody looks on (btl_fabric_top).
  [[nodiscard]] bool take_look() noexcept;
  /// The answer to all that have asked: a line.
  void answer(std::string line);
  /// Everything that the progress thread had to say, in order.
  [[nodiscard]] std::vector<Upcall> take_upcalls();

 private:
  class Impl;
  explicit ConnectionManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  const std::atomic<bool>& has_upcalls_;  ///< of `impl_`
};

}  // namespace fabric::cpc
