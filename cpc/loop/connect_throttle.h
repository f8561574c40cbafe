// SPDX-License-Identifier: BSD-3-Clause
//
// Who may have a connection under way: so many at once, the others in the order in which they asked. Thousands of
// connections that are wanted at once cost neither thousands of sockets nor the peers' backlogs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>

#include "cpc/loop/event_loop.h"

namespace fabric::cpc {

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
    Ticket(ConnectThrottle& throttle, std::function<void()> granted, std::function<void()> asked_to_yield);
    ConnectThrottle& throttle_;
    std::function<void()> granted_;
    std::function<void()> asked_to_yield_;
    std::list<Ticket*>::iterator place_;  ///< in waiting_ or holding_
    std::chrono::steady_clock::time_point since_;
    bool has_turn_ = false;
  };

  /// `most`: turns at once, at least 1.
  ConnectThrottle(event_base* loop, std::size_t most);

  /// Asks for a turn. `granted` is called on a later turn of the loop, once; `asked_to_yield` (if there is one) when
  /// others have waited and the holder was not quick: it may then give its ticket back and ask for another. Either may
  /// destroy the ticket.
  [[nodiscard]] std::unique_ptr<Ticket> ask(std::function<void()> granted,
                                            std::function<void()> asked_to_yield = nullptr);

  /// The same at once, if there is a turn that nobody waits for; else null.
  [[nodiscard]] std::unique_ptr<Ticket> take(std::function<void()> asked_to_yield = nullptr);
  /// True if there is one.
  [[nodiscard]] bool has_room() const noexcept { return waiting_.empty() && holding_.size() < most_; }

  [[nodiscard]] std::size_t holding() const noexcept { return holding_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  void look() noexcept;
  void grant();
  void give_turn(Ticket& ticket) noexcept;
  void ask_to_yield();

  std::size_t most_;
  std::list<Ticket*> waiting_;  ///< first to come, first
  std::list<Ticket*> holding_;  ///< longest first, but those that were asked to yield and did not at the end
  Timer granting_;
  Timer impatience_;
};

}  // namespace fabric::cpc
