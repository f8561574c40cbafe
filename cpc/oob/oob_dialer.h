// SPDX-License-Identifier: BSD-3-Clause
//
// Opens a TCP connection to the first of several addresses that answers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/loop/shortage_report.h"
#include "cpc/oob/oob_addresses.h"

namespace fabric::cpc {

/// Sets what every socket of a stream has, and of a listener, from which accepted ones inherit it: no delay for small messages, and a keepalive that notices a dead host after
/// about a minute, also while data waits for an acknowledgement.
void set_channel_options(int socket) noexcept;

/// Progress thread only. Destroying it gives up.
class Dialer {
 public:
  /// A connected, non-blocking socket; or why none of the addresses gave one, each with its reason. Without a descriptor
  /// for a socket it ends at once: no address is to blame for that.
  using Done = std::function<void(Result<FileDescriptor>)>;

  /// Starts on the next turn of the loop; `done` is called once and may destroy the dialer. Each address gets
  /// `timeout_ms`. `shortage` outlives it.
  Dialer(event_base* loop, ShortageReport& shortage, std::vector<SocketAddress> addresses, unsigned timeout_ms,
         Done done);

  /// How many of the addresses have been tried, the one that is being tried included.
  [[nodiscard]] std::size_t begun() const noexcept { return next_; }
  /// All that have been tried refuse: nobody listens there.
  [[nodiscard]] bool all_refuse() const noexcept { return next_ > 0 && refused_ == next_; }
  /// The one that is being tried.
  [[nodiscard]] const SocketAddress& address() const noexcept { return addresses_[next_ == 0 ? 0 : next_ - 1]; }

 private:
  void on_timer();
  void on_writable();
  void try_next();
  [[nodiscard]] int begin(const SocketAddress& address);
  void note_failure(const std::string& why);
  void note_error(int error_number);
  void finish(Result<FileDescriptor> result);

  event_base* loop_;
  ShortageReport& shortage_;
  std::vector<SocketAddress> addresses_;
  unsigned timeout_ms_;
  Done done_;
  std::size_t next_ = 0;  ///< the address to try next; the one being tried is before it
  std::size_t refused_ = 0;
  std::string failures_;
  FileDescriptor socket_;
  std::unique_ptr<Watch> watch_;  ///< while an address is being tried; after socket_, to be gone before it is closed
  Timer timer_;
};

}  // namespace fabric::cpc
