// SPDX-License-Identifier: BSD-3-Clause
//
// What the subnet administrator has said of the paths from a port (btl_fabric_path_records). InfiniBand Architecture
// Specification 1.4, section 15.2.5.16 (PathRecord).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "common/ports/port_address.h"

namespace fabric::cpc {

/// What counts of a path from a port of ours to one of a peer. The peer itself says which of its LIDs it uses.
struct PathRecord {
  std::uint8_t service_level = 0;
  std::uint8_t path_bits = 0;  ///< which of our LIDs: the path's less the port's first
  std::uint8_t mtu = 0;        ///< enum ibv_mtu
  std::uint8_t rate = 0;       ///< enum ibv_rate
  bool operator==(const PathRecord&) const = default;
};

/// The answers of a port, by the GIDs of peers' ports. Progress thread only; outlives the port's connections.
class PathTable {
 public:
  /// `has_own_lids`: the port is one of several paths through a port (btl_fabric_paths), which stay apart by their LIDs; of a
  /// record it takes the rest.
  explicit PathTable(bool has_own_lids) noexcept : has_own_lids_(has_own_lids) {}

  [[nodiscard]] bool has_own_lids() const noexcept { return has_own_lids_; }
  /// True once something was noted, be it that there is no answer.
  [[nodiscard]] bool is_known(const Gid& peer) const { return paths_.contains(peer); }
  /// Null if nothing is known, or there is no answer: then what the peer has published is all there is.
  [[nodiscard]] const PathRecord* find(const Gid& peer) const {
    const auto found = paths_.find(peer);
    return found == paths_.end() || !found->second ? nullptr : &*found->second;
  }
  /// The first counts: what a peer was told of the way stays true.
  void note(const Gid& peer, std::optional<PathRecord> path) { paths_.try_emplace(peer, path); }

 private:
  const bool has_own_lids_;
  std::map<Gid, std::optional<PathRecord>> paths_;
};

}  // namespace fabric::cpc
