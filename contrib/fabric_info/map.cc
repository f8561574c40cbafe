// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/map.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/counted.h"
#include "common/base/rank_list.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;
using Line = std::vector<std::string>;

/// Characters of a list of ranks that a table has room for.
constexpr std::size_t kWidestRanks = 24;

/// What rows that become one have in common.
auto key_of(const MapRow& row, MapFold fold) {
  MapSide from = row.from;
  MapSide to = row.to;
  if (fold != MapFold::kNothing) {
    from.ranks.clear();
    to.ranks.clear();
  }
  if (fold == MapFold::kHosts) {
    from = to = {};
  }
  return std::tuple(from.hosts, from.ranks, row.way, row.is_of_another_job, from.gids, to);
}

void merge(MapSide& into, const MapSide& more) {
  into.hosts.insert(more.hosts.begin(), more.hosts.end());
  into.ranks.insert(more.ranks.begin(), more.ranks.end());
  into.gids.insert(more.gids.begin(), more.gids.end());
}

/// "node1", "12 hosts"
std::string one_or_count(const std::set<std::string>& names, const char* several) {
  return names.size() == 1 ? *names.begin() : std::to_string(names.size()) + ' ' + several;
}

std::string ranks_text(const std::set<std::uint32_t>& ranks) {
  std::string list = list_of_ranks({ranks.begin(), ranks.end()});
  if (list.size() > kWidestRanks) {
    list.resize(list.rfind(',', kWidestRanks));
    list += ", ...";
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

std::string side_text(const MapSide& side) {
  return one_or_count(side.hosts, "hosts") + ", " + ranks_text(side.ranks);
}

/// "12.3 MB"
std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; number >= 999.95; number /= 1000) {
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", number, kUnits.at(unit));
  return text;
}

/// Columns as wide as they must be; the last three are numbers, and stand to the right.
std::string table(const std::vector<Line>& lines) {
  constexpr std::size_t kNumbers = 3;
  std::vector<std::size_t> widths(lines.front().size());
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string room(widths[i] - line[i].size(), ' ');
      text += "  " + (i + kNumbers >= line.size() ? room + line[i] : line[i] + room);
    }
    text += '\n';
  }
  return text;
}

MapFold fold_for(const JobMap& map) {
  for (const MapFold fold : {MapFold::kNothing, MapFold::kProcesses}) {
    if (folded(map.rows, fold).size() <= kMostMapRows) {
      return fold;
    }
  }
  return MapFold::kHosts;
}

}  // namespace

std::vector<MapRow> folded(const std::vector<MapRow>& rows, MapFold fold) {
  std::map<decltype(key_of(rows.front(), fold)), MapRow> by_key;
  for (const MapRow& row : rows) {
    const auto [known, is_new] = by_key.try_emplace(key_of(row, fold), row);
    if (!is_new) {
      MapRow& sum = known->second;
      merge(sum.from, row.from);
      merge(sum.to, row.to);
      sum.connections += row.connections;
      sum.bytes += row.bytes;
    }
  }
  std::vector<MapRow> result;
  for (auto& [key, row] : by_key) {
    result.push_back(std::move(row));
  }
  return result;
}

std::string map_as_text(const JobMap& map) {
  std::string text = counted(map.processes, "process", "processes") + " on " +
                     counted(map.hosts.size(), "host", "hosts") + ", btl_fabric " + map.version + '\n';
  if (map.is_of_one) {
    text += "one process has told of itself alone: who started the job does not pass on what others say\n";
  }
  if (!map.silent.empty()) {
    text += "nothing is known of " + ranks_text({map.silent.begin(), map.silent.end()}) + ", who did not answer\n";
  }
  if (!map.without.empty()) {
    text += ranks_text({map.without.begin(), map.without.end()}) + " did not use btl_fabric\n";
  }
  if (map.rows.empty()) {
    return text + "nobody was connected with anybody\n";
  }
  const MapFold fold = fold_for(map);
  if (fold != MapFold::kNothing) {
    text += std::string("rows that differ in nothing but the ") +
            (fold == MapFold::kProcesses ? "process" : "process and the host") +
            " are one; --rank N shows those of one process, --json all\n";
  }
  std::vector<Line> lines{{"from", "port", "GID", "to", "port", "GID", "by", "MTU", "queue pairs", "bytes"}};
  for (const MapRow& row : folded(map.rows, fold)) {
    lines.push_back({side_text(row.from), row.way.port, one_or_count(row.from.gids, "GIDs"),
                     side_text(row.to) + (row.is_of_another_job ? " of other jobs" : ""), row.way.peer_port,
                     one_or_count(row.to.gids, "GIDs"), row.way.method, std::to_string(row.way.mtu),
                     std::to_string(row.way.queue_pairs) + (row.way.are_shared ? ", shared" : ""),
                     bytes_text(row.bytes)});
  }
  return text + table(lines);
}

Json map_as_json(const JobMap& map) {
  Json json{{"version", map.version}, {"processes", map.processes},        {"of_one_alone", map.is_of_one},
            {"silent", map.silent},   {"without_btl_fabric", map.without}, {"rows", Json::array()}};
  const auto side = [](const MapSide& of) {
    return Json{{"host", *of.hosts.begin()}, {"gid", *of.gids.begin()}, {"ranks", of.ranks}};
  };
  for (const MapRow& row : folded(map.rows, MapFold::kNothing)) {
    Json& one = json["rows"].emplace_back(Json{{"from", side(row.from)}, {"to", side(row.to)}});
    one["from"]["port"] = row.way.port;
    one["to"]["port"] = row.way.peer_port;
    one["to"]["is_of_another_job"] = row.is_of_another_job;
    one["method"] = row.way.method;
    one["mtu"] = row.way.mtu;
    one["queue_pairs"] = row.way.queue_pairs;
    one["queue_pairs_are_shared"] = row.way.are_shared;
    one["bytes"] = row.bytes;
  }
  return json;
}

}  // namespace fabric::info
