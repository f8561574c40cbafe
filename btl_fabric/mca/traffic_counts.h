// SPDX-License-Identifier: BSD-3-Clause
//
// How much Open MPI sends to each peer: for contrib/fabric_top. Only with btl_fabric_top, which alone pays for it
// (btl_fabric/mca/watched_calls.h).
#pragma once

#include "btl_fabric/mca/watched_calls.h"

namespace fabric {

struct PeerTraffic;

class TrafficCounts final : public CallWatcher {
 public:
  /// From now on all that goes through these modules is counted. Before Open MPI has them.
  static void count(std::span<const std::unique_ptr<Module>> modules) noexcept;

  void sent(const Endpoint* endpoint, std::size_t bytes) noexcept override;
  void put(const Endpoint* endpoint, std::size_t bytes) noexcept override;
  void got(const Endpoint* endpoint, std::size_t bytes) noexcept override;
  void operated(const Endpoint* endpoint) noexcept override;

 private:
  [[nodiscard]] static PeerTraffic* traffic_to(const Endpoint* endpoint) noexcept;
};

}  // namespace fabric
