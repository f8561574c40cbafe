// SPDX-License-Identifier: BSD-3-Clause
//
// By which ways a process has reached its peers, for btl_fabric_report and the map that fabric_info draws of it. Nothing here knows
// Open MPI; who notes it is path_notes.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/ports/port_address.h"

namespace fabric {

struct JobReport;

/// A peer that is reached in some way.
struct PathPeer {
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;  ///< that Open MPI has given to the port for it, to be sent, written and read
  auto operator<=>(const PathPeer&) const = default;
};

/// A way by which a process has been connected.
struct PathWay {
  std::string port;  ///< ours, "mlx5_0:1"
  Gid gid;           ///< of it
  Gid peer_gid;
  std::string method;
  std::uint32_t mtu = 0;    ///< bytes: the smaller one of both ports
  bool are_shared = false;  ///< queue pairs of X queues: all processes behind the peer's port are reached by them
  bool is_of_another_job = false;  ///< the peer
  std::uint32_t queue_pairs = 0;   ///< for each peer, of all paths of the port and all contexts
  auto operator<=>(const PathWay&) const = default;
};

/// And all peers that have been reached so, by rank.
struct ReportedPath {
  PathWay way;
  std::vector<PathPeer> peers;
  bool operator==(const ReportedPath&) const = default;
};

/// What a process sends of its paths to who writes the report.
[[nodiscard]] nlohmann::ordered_json encode_paths(const std::vector<ReportedPath>& paths);
/// Throws what nlohmann::json throws if it makes no sense.
[[nodiscard]] std::vector<ReportedPath> decode_paths(const nlohmann::ordered_json& json);

/// Those of all processes, with the host and the port behind each GID of a peer that has told of its ports: an element for each process,
/// way and host of peers.
[[nodiscard]] nlohmann::ordered_json paths_as_json(const JobReport& job);

}  // namespace fabric
