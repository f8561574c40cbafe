// SPDX-License-Identifier: BSD-3-Clause
//
// Which peer of a job is reached by what: a map of the report that btl_fabric_report=FILE.json has written, as text, JSON and picture.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace fabric::info {

/// What may differ between two connections beside who has them.
struct MapWay {
  std::string port;       ///< "mlx5_0:1"
  std::string peer_port;  ///< "?": the peer has not told
  std::string method;
  std::uint32_t mtu = 0;  ///< bytes
  std::uint32_t queue_pairs = 0;
  bool are_shared = false;  ///< X queues: they lead to all processes of the host
  auto operator<=>(const MapWay&) const = default;
};

/// One side of connections.
struct MapSide {
  std::set<std::string> hosts;  ///< "?": nobody has told
  std::set<std::uint32_t> ranks;
  std::set<std::string> gids;
  auto operator<=>(const MapSide&) const = default;
};

/// Connections that are made in the same way.
struct MapRow {
  MapSide from;
  MapSide to;
  bool is_of_another_job = false;  ///< `to`
  MapWay way;
  std::uint64_t connections = 0;
  std::uint64_t bytes = 0;  ///< that have gone this way, from `from` to `to`: sent and written, and read by `from`
};

/// Processes of a host, in the order of the report.
struct MapHost {
  std::string name;
  std::vector<std::uint32_t> ranks;
};

/// A job. Every text in it is printable.
struct JobMap {
  std::string version;  ///< of btl_fabric
  std::uint32_t processes = 0;
  bool is_of_one = false;              ///< process, since the launcher passes nothing on
  std::vector<std::uint32_t> silent;   ///< ranks that have told nothing
  std::vector<std::uint32_t> without;  ///< ranks that do not run btl_fabric
  std::vector<MapHost> hosts;
  std::vector<MapRow> rows;  ///< each of one process, and one host of peers
};

/// What can be left out so that a large job has few rows.
enum class MapFold : std::uint8_t {
  kNothing,
  kProcesses,  ///< those of a host, by one port, are one row
  kHosts,      ///< all hosts are one
};

/// A report. The error names the part of it that is wrong, and the rule.
[[nodiscard]] Result<JobMap> parse_map(std::string_view text);
[[nodiscard]] Result<JobMap> read_map(const std::string& file);
/// Only what this process has told.
[[nodiscard]] Result<JobMap> map_of_rank(JobMap map, std::uint32_t rank);

/// Rows that are equal but for what is left out become one; in the order of hosts, ports and peers.
[[nodiscard]] std::vector<MapRow> folded(const std::vector<MapRow>& rows, MapFold fold);

/// A table. It leaves out as little as it must to have at most so many rows, if that can be.
inline constexpr std::size_t kMostMapRows = 40;
[[nodiscard]] std::string map_as_text(const JobMap& map);
/// The rows with nothing left out.
[[nodiscard]] nlohmann::ordered_json map_as_json(const JobMap& map);
/// A picture in SVG: a square for each process and peer, coloured by the way. Above kMostMapLines processes: for each host and peer's
/// host; above as many hosts: for groups of hosts.
inline constexpr std::size_t kMostMapLines = 64;
[[nodiscard]] std::string map_as_svg(const JobMap& map);

}  // namespace fabric::info
