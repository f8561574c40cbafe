// SPDX-License-Identifier: BSD-3-Clause
//
// The listening side of the oob CPC. Whoever connects is a stranger until it has sent a whole REQUEST with our token
// and our name; a stranger has little time for that, and whatever else it does ends with a closed socket and a count (strangers.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/oob/oob_channel.h"

namespace fabric::cpc {

/// Progress thread only.
class OobListener final : private ChannelHandler {
 public:
  static constexpr std::size_t kMaxStrangers = 64;  ///< at once; more wait in the backlogs of the sockets

  struct Settings {
    const CpcTraits& cpc;  ///< of the channels
    JobToken token{};
    ProcessName self;
    unsigned stranger_timeout_ms = 10000;
    std::size_t limit = 128;        ///< sockets that were accepted and are still open; more wait in the backlogs
    std::vector<HostAddress> only;  ///< addresses of this host on which peers are heard; empty: all
  };
  /// Listens on the IPv4 and IPv6 addresses of this host, on ports that the kernel chooses. One family is enough.
  [[nodiscard]] static Result<std::unique_ptr<OobListener>> open(event_base* loop, const Settings& settings,
                                                                 OnRequest on_request);
  ~OobListener() = default;

  /// TCP ports; 0 if the host does not have the family.
  [[nodiscard]] std::uint16_t port_v4() const noexcept { return port_v4_; }
  [[nodiscard]] std::uint16_t port_v6() const noexcept { return port_v6_; }

 private:
  struct Socket {
    FileDescriptor fd;
    std::unique_ptr<Watch> watch;  ///< after fd, to be gone before it is closed
  };
  struct Stranger {
    std::unique_ptr<OobChannel> channel;
    std::unique_ptr<Timer> timer;
  };

  OobListener(event_base* loop, const Settings& settings, OnRequest on_request);
  [[nodiscard]] Status listen(int family, Socket& socket, std::uint16_t& port);
  [[nodiscard]] bool is_full() const noexcept;
  void accept_from(int fd);
  void admit(FileDescriptor socket);
  void turn_away(const Channel* channel);
  void closed();
  void resume();
  void pause();

  void on_message(Channel& channel, Message message) override;
  void on_lost(Channel& channel, std::string reason, bool confirm_taken) override;

  event_base* loop_;
  Settings settings_;
  OnRequest on_request_;
  Socket v4_;
  Socket v6_;
  std::uint16_t port_v4_ = 0;
  std::uint16_t port_v6_ = 0;
  std::size_t open_ = 0;  ///< channels that peers have opened, strangers' included
  Timer pause_over_;
  std::unordered_map<const Channel*, Stranger> strangers_;  ///< first to go: they say so
};

}  // namespace fabric::cpc
