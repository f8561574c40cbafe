// SPDX-License-Identifier: BSD-3-Clause
//
// The peers with most traffic, for contrib/fabric_top.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "btl_fabric/peer/endpoints.h"
#include "common/base/top_page.h"

namespace fabric {

/// Looks at the endpoints of all ports. Belongs to whoever holds all locks.
class EndpointsTop {
 public:
  /// From now on what goes to each peer of a port and context is counted. Before there are any.
  static void watch(Endpoints& endpoints) noexcept { endpoints.counts_traffic_ = true; }

  /// Takes the endpoints of a port, of its first context, and what has gone since the last time that it did.
  void take(Endpoints& endpoints);
  /// Puts those into `rows` for which there is place: first those for whom something waits, then those with most traffic since the
  /// last time, then those with most of all. Gives their number.
  [[nodiscard]] std::uint32_t write(std::span<top::Peer> rows);
  /// Those that have been taken.
  [[nodiscard]] std::size_t count() const noexcept { return all_.size(); }

 private:
  struct Look {
    Endpoint* endpoint = nullptr;
    std::uint32_t port = 0;
    bool waits = false;
    std::uint64_t recent = 0;  ///< bytes, a packet counting as a few
    std::uint64_t total = 0;
    top::Flow before;
    top::Flow now;
  };
  static void take_packets(const Endpoint& endpoint);
  [[nodiscard]] static Look look_at(Endpoint& endpoint, std::uint32_t port);
  static void describe(const Look& look, top::Peer& row);

  std::vector<Look> all_;
  std::uint32_t ports_ = 0;
};

}  // namespace fabric
