// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/loop/connect_throttle.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"

namespace fabric::cpc {

ConnectThrottle::Ticket::Ticket(ConnectThrottle& throttle, std::uint32_t place, std::function<void()> granted,
                                std::function<void()> asked_to_yield)
    : throttle_(throttle),
      granted_(std::move(granted)),
      asked_to_yield_(std::move(asked_to_yield)),
      waiting_(throttle.waiting_.emplace(place, this)) {}

ConnectThrottle::Ticket::~Ticket() {
  assert_on_progress_thread();
  if (has_turn_) {
    throttle_.holding_.erase(holding_);
  } else {
    throttle_.waiting_.erase(waiting_);
  }
  throttle_.look();
}

ConnectThrottle::ConnectThrottle(event_base* loop, std::size_t most)
    : most_(std::max<std::size_t>(most, 1)),
      granting_(loop, [this] { grant(); }),
      impatience_(loop, [this] { ask_to_yield(); }) {}

std::unique_ptr<ConnectThrottle::Ticket> ConnectThrottle::ask(std::function<void()> granted,
                                                              std::function<void()> asked_to_yield,
                                                              std::uint32_t place) {
  assert_on_progress_thread();
  std::unique_ptr<Ticket> ticket(new Ticket(*this, place, std::move(granted), std::move(asked_to_yield)));
  look();
  return ticket;
}

std::unique_ptr<ConnectThrottle::Ticket> ConnectThrottle::take(std::function<void()> asked_to_yield) {
  assert_on_progress_thread();
  if (!has_room()) {
    return nullptr;
  }
  std::unique_ptr<Ticket> ticket(new Ticket(*this, 0, nullptr, std::move(asked_to_yield)));
  give_turn(*ticket);
  return ticket;
}

void ConnectThrottle::give_turn(Ticket& ticket) {
  ticket.holding_ = holding_.insert(holding_.end(), &ticket);
  waiting_.erase(ticket.waiting_);
  ticket.has_turn_ = true;
  ticket.since_ = std::chrono::steady_clock::now();
}

/// Sees to it that whoever waits is dealt with.
void ConnectThrottle::look() noexcept {
  if (waiting_.empty()) {
    return;
  }
  if (holding_.size() < most_) {
    if (!granting_.running()) {
      granting_.start(0);
    }
  } else if (!impatience_.running()) {
    impatience_.start(static_cast<unsigned>(kPatience.count()));
  }
}

void ConnectThrottle::grant() {
  while (!waiting_.empty() && holding_.size() < most_) {
    const auto next = waiting_.lower_bound(next_);
    Ticket& first = *(next != waiting_.end() ? next : waiting_.begin())->second;
    next_ = first.waiting_->first + 1;
    give_turn(first);
    const std::function<void()> granted = first.granted_;  // a copy: it may destroy the ticket
    granted();
  }
  look();
}

void ConnectThrottle::ask_to_yield() {
  const auto due = std::chrono::steady_clock::now() - kPatience;
  for (std::size_t i = std::min(waiting_.size(), holding_.size()); i > 0 && !holding_.empty(); --i) {
    Ticket& longest = *holding_.front();
    if (longest.since_ > due) {
      break;
    }
    holding_.splice(holding_.end(), holding_, longest.holding_);
    if (const std::function<void()> ask = longest.asked_to_yield_) {
      ask();
    }
  }
  look();
}

}  // namespace fabric::cpc
