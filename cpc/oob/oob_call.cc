// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_call.h"

#include <algorithm>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/tcp_connections.h"

namespace fabric::cpc {

void OobCall::ask_for_turn() {
  assert_on_progress_thread();
  ticket_.reset();
  ticket_ = environment_.throttle->ask([this] { caller_.on_turn(); }, [this] { caller_.on_others_wait(); }, place_);
}

bool OobCall::ask_for_turn_at_once() {
  if (ticket_) {
    return true;
  }
  if (!environment_.throttle->has_room()) {
    return false;
  }
  ask_for_turn();
  return true;
}

bool OobCall::take_turn() {
  if (!ticket_) {
    ticket_ = environment_.throttle->take([this] { caller_.on_others_wait(); });
  }
  return ticket_ != nullptr;
}

void OobCall::dial() {
  dialed_ = std::chrono::steady_clock::now();
  dialer_ = std::make_unique<Dialer>(environment_.loop, *environment_.shortage, addresses_, environment_.timeout_ms,
                                     [this](Result<FileDescriptor> socket) { on_done(std::move(socket)); });
}

void OobCall::on_done(Result<FileDescriptor> socket) {
  const std::size_t tried = dialer_->begun();
  nobody_listens_ = !socket && dialer_->all_refuse();
  dialer_.reset();
  if (!socket) {
    caller_.on_not_dialed(std::move(socket).error().text);
    return;
  }
  tcp_connections_opened.fetch_add(1, std::memory_order_relaxed);
  dialed_ = {};
  dialed_ms_ = 0;
  try_first(tried - 1);
  caller_.on_dialed(std::move(*socket));
}

void OobCall::yield_dial() {
  if (tried_ms() >= addresses_.size() * environment_.timeout_ms) {
    const std::string address = to_string(dialer_->address());
    dialer_.reset();
    caller_.on_not_dialed(address + ": no answer, nor from its other addresses, in " + std::to_string(tried_ms()) +
                          " ms");
    return;
  }
  dialed_ms_ = tried_ms();
  dialed_ = {};
  try_first(dialer_->begun());
  dialer_.reset();
  ask_for_turn();
}

/// Whoever says nothing may be another service, or a host with a bridge of the same address. If it is the peer after all,
/// which cannot run just now, its turn comes again.
void OobCall::wait_for_hello() {
  if (addresses_.size() > 1) {
    hello_due_ = std::make_unique<Timer>(environment_.loop, [this] { caller_.on_silence(); });
    hello_due_->start(environment_.timeout_ms);
  }
}

void OobCall::leave_address() {
  try_first(addresses_.size() > 1 ? 1 : 0);
}

void OobCall::try_first(std::size_t address) {
  std::rotate(addresses_.begin(), addresses_.begin() + static_cast<std::ptrdiff_t>(address), addresses_.end());
}

unsigned OobCall::tried_ms() const noexcept {
  using Clock = std::chrono::steady_clock;
  const auto now = dialed_ == Clock::time_point() ? Clock::duration() : Clock::now() - dialed_;
  return dialed_ms_ + static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace fabric::cpc
