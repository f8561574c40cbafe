// SPDX-License-Identifier: BSD-3-Clause
//
// Who may have a connection under way: so many at once, the others in turn. Thousands of connections that are wanted at once
// cost neither thousands of sockets nor the peers' backlogs.
//
// Turns go round, by places: each process begins with the rank behind its own, so that all that connect to all do not all
// begin with the same one. Those of one place have their turn in the order in which they asked, and nobody is passed over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "common/base/identity.h"
#include "cpc/loop/event_loop.h"

namespace fabric::cpc {

/// Where the turn of connections to `peer` is in the round of the process `self`.
[[nodiscard]] constexpr std::uint32_t place_of(const ProcessName& peer, const ProcessName& self) noexcept {
  return peer.rank - self.rank - 1;
}

/// Progress thread only. Outlives its tickets.
class ConnectThrottle {
 public:
  /// How long a holder is left alone while others wait: it may be waiting for a main thread that computes.
  static constexpr std::chrono::milliseconds kPatience{500};

  class Ticket {
   public:
    /// Gives the turn back, or leaves the queue.
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    [[nodiscard]] bool has_turn() const noexcept { return has_turn_; }

   private:
    friend class ConnectThrottle;
    Ticket(ConnectThrottle& throttle, std::uint32_t place, std::function<void()> granted,
           std::function<void()> asked_to_yield);
    ConnectThrottle& throttle_;
    std::function<void()> granted_;
    std::function<void()> asked_to_yield_;
    std::multimap<std::uint32_t, Ticket*>::iterator waiting_;  ///< while it has no turn
    std::list<Ticket*>::iterator holding_;                     ///< while it has one
    std::chrono::steady_clock::time_point since_;
    bool has_turn_ = false;
  };

  /// `most`: turns at once, at least 1.
  ConnectThrottle(event_base* loop, std::size_t most);

  /// Asks for a turn. `granted` is called on a later turn of the loop, once; `asked_to_yield` (if there is one) when
  /// others have waited and the holder was not quick: it may then give its ticket back and ask for another. Either may
  /// destroy the ticket.
  [[nodiscard]] std::unique_ptr<Ticket> ask(std::function<void()> granted,
                                            std::function<void()> asked_to_yield = nullptr, std::uint32_t place = 0);

  /// The same at once, if there is a turn that nobody waits for; else null.
  [[nodiscard]] std::unique_ptr<Ticket> take(std::function<void()> asked_to_yield = nullptr);
  /// True if there is one.
  [[nodiscard]] bool has_room() const noexcept { return waiting_.empty() && holding_.size() < most_; }

  [[nodiscard]] std::size_t holding() const noexcept { return holding_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  void look() noexcept;
  void grant();
  void give_turn(Ticket& ticket);
  void ask_to_yield();

  std::size_t most_;
  std::multimap<std::uint32_t, Ticket*> waiting_;  ///< by place, of one place the first to come first
  std::uint32_t next_ = 0;                         ///< the round goes on with this place
  std::list<Ticket*> holding_;  ///< longest first, but those that were asked to yield and did not at the end
  Timer granting_;
  Timer impatience_;
};

}  // namespace fabric::cpc
