// SPDX-License-Identifier: BSD-3-Clause
//
// The listening side of the oob CPC. Whoever connects is unknown until it has sent a whole REQUEST that was signed with our
// token and has our name. It has little time for that, and whatever else it does ends with a closed socket and a count (unknown_peers.h).
//
// So many sockets at once are accepted; more peers wait in the backlogs of the listening sockets. While some do, one that
// nobody uses is closed at once, and any other keeps its place for a short time only: an unknown peer is turned away, and one
// that waits for our main thread is told to come back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/loop/shortage_report.h"
#include "cpc/oob/oob_stream.h"
#include "cpc/oob/oob_streams.h"

namespace fabric::cpc {

/// Progress thread only. Outlives the streams that it has accepted.
class OobListener final : private OobHost {
 public:
  static constexpr std::size_t kMaxUnknown = 64;  ///< unknown peers at once, where there are descriptors enough
  /// How long an accepted socket keeps its place while others wait.
  static constexpr std::chrono::milliseconds kPatience{100};

  struct Settings {
    ShortageReport& shortage;             ///< told when a socket cannot be accepted; outlives the listener
    unsigned unknown_timeout_ms = 10000;  ///< for a peer to say who it is
    std::size_t limit = 128;              ///< sockets that were accepted and are still open
    std::vector<HostAddress> only;        ///< addresses of this host on which peers are heard; empty: all
  };
  /// Listens on the IPv4 and IPv6 addresses of this host, on ports that the kernel chooses: one for all addresses of a
  /// family. One family is enough.
  [[nodiscard]] static Result<std::unique_ptr<OobListener>> open(event_base* loop, const Settings& settings,
                                                                 OobStreams& streams);

  /// TCP ports; 0 if the host does not have the family.
  [[nodiscard]] std::uint16_t port_v4() const noexcept { return port_v4_; }
  [[nodiscard]] std::uint16_t port_v6() const noexcept { return port_v6_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Socket {
    FileDescriptor fd;
    std::unique_ptr<Watch> watch;  ///< after fd, to be gone before it is closed
  };
  /// A socket that was accepted and is still open.
  struct Accepted {
    HostAddress from;
    OobStream* stream = nullptr;
    std::unique_ptr<Timer> timer;  ///< until its REQUEST has arrived
    [[nodiscard]] bool is_unknown() const noexcept { return timer != nullptr; }
  };
  using Place = std::list<Accepted>::iterator;

  OobListener(event_base* loop, const Settings& settings, OobStreams& streams);
  [[nodiscard]] Result<std::uint16_t> listen(bool is_v6);
  [[nodiscard]] Status listen(const std::vector<HostAddress>& addresses, std::uint16_t& port);
  [[nodiscard]] Result<FileDescriptor> listening_socket(const SocketAddress& address) const;
  [[nodiscard]] bool is_full() const noexcept;
  void accept_from(int fd);
  void admit(FileDescriptor socket, const SocketAddress& from);
  [[nodiscard]] bool make_room();
  void wait_for_descriptors(int error_number);
  [[nodiscard]] bool defer_one();
  [[nodiscard]] bool turn_one_away();
  void turn_away(Place place);
  [[nodiscard]] Place place_of(const OobStream& stream) noexcept;
  void resume();
  void pause(std::chrono::milliseconds length);

  void on_known(OobStream& stream) override;
  void on_closed(OobStream& stream) override;

  event_base* loop_;
  Settings settings_;
  OobStreams& streams_;
  std::vector<Socket> sockets_;
  std::uint16_t port_v4_ = 0;
  std::uint16_t port_v6_ = 0;
  Timer pause_over_;
  std::list<Accepted> accepted_;  ///< oldest first
  std::size_t unknown_ = 0;       ///< of accepted_
  std::size_t most_unknown_ = kMaxUnknown;
};

}  // namespace fabric::cpc
