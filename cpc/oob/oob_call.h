// SPDX-License-Identifier: BSD-3-Clause
//
// The way to a peer's listener: a turn of the throttle, then the first of the peer's addresses at which somebody accepts
// and says HELLO.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cpc/loop/connect_throttle.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/loop/shortage_report.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/oob_dialer.h"

namespace fabric::cpc {

/// What all calls of a process share; outlives them.
struct DialEnvironment {
  event_base* loop = nullptr;
  ConnectThrottle* throttle = nullptr;
  ShortageReport* shortage = nullptr;
  unsigned timeout_ms = 0;  ///< for an address to answer
};

/// Who calls. Each function may end the call.
class OobCaller {
 public:
  virtual void on_turn() = 0;
  virtual void on_dialed(FileDescriptor socket) = 0;
  virtual void on_not_dialed(std::string reason) = 0;
  /// Whoever has accepted does not say HELLO.
  virtual void on_silence() = 0;
  /// Others wait for a turn, and this one has not been quick. It may be given back.
  virtual void on_others_wait() = 0;

 protected:
  ~OobCaller() = default;
};

/// Progress thread only. Destroying it gives up.
class OobCall {
 public:
  /// `caller` outlives this. `place`: of its turn (connect_throttle.h).
  OobCall(const DialEnvironment& environment, std::vector<SocketAddress> addresses, std::uint32_t place,
          OobCaller& caller)
      : environment_(environment), addresses_(std::move(addresses)), place_(place), caller_(caller) {}

  /// For a socket that is open the turn must come at once, or it is not asked for. False if it was not.
  void ask_for_turn();
  [[nodiscard]] bool ask_for_turn_at_once();
  /// The turn that the peer's use of our socket takes. False if there is none.
  [[nodiscard]] bool take_turn();
  void end_turn() noexcept { ticket_.reset(); }
  /// The turn has come.
  [[nodiscard]] bool has_turn() const noexcept { return ticket_ && ticket_->has_turn(); }
  /// Whatever is under way.
  void give_up() noexcept {
    hello_due_.reset();
    dialer_.reset();
    ticket_.reset();
  }

  /// In its turn. The caller hears of the socket, or why there is none.
  void dial();
  [[nodiscard]] bool is_dialing() const noexcept { return dialer_ != nullptr; }
  /// Gives the turn to others, and asks for another one: an address that does not answer is left for the next one.
  /// Altogether each gets its time; then the caller hears that there is no socket.
  void yield_dial();
  /// There is a socket: for so long whoever has accepted may say nothing, where there are other addresses.
  void wait_for_hello();
  void hello_has_come() noexcept { hello_due_.reset(); }
  /// That of the socket.
  [[nodiscard]] const SocketAddress& address() const noexcept { return addresses_.front(); }
  /// The next time begins with the next address.
  void leave_address();

  /// Milliseconds in which it has tried to get a socket, since its turn came.
  [[nodiscard]] unsigned tried_ms() const noexcept;
  /// After on_not_dialed(): the peer's host answers that nobody listens there.
  [[nodiscard]] bool nobody_listens() const noexcept { return nobody_listens_; }

 private:
  void on_done(Result<FileDescriptor> socket);
  void try_first(std::size_t address);

  const DialEnvironment& environment_;
  std::vector<SocketAddress> addresses_;
  const std::uint32_t place_;
  OobCaller& caller_;
  std::unique_ptr<ConnectThrottle::Ticket> ticket_;
  std::unique_ptr<Dialer> dialer_;
  std::chrono::steady_clock::time_point dialed_;  ///< when it was begun; not set once it has led to a socket
  unsigned dialed_ms_ = 0;                        ///< before that, in turns that were given to others
  std::unique_ptr<Timer> hello_due_;
  bool nobody_listens_ = false;
};

}  // namespace fabric::cpc
