// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the report of a job, which anybody may have written.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "contrib/fabric_info/map.h"

namespace fabric::info {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostRanks = 1U << 24;
/// Of a value that is wrong, for the message.
constexpr std::size_t kShown = 60;

/// What is wrong with a report.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value of the report, and where it stands: "paths[3].mtu".
class Value {
 public:
  Value(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& rule) const {
    std::string shown = json_.is_array()    ? "a list"
                        : json_.is_object() ? "an object"
                                            : json_.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > kShown) {
      shown = shown.substr(0, kShown) + "...";
    }
    throw Wrong((where_.empty() ? "it" : where_) + " is " + shown + ", but must be " + rule);
  }
  [[nodiscard]] Value operator[](const char* name) const {
    if (!json_.is_object()) {
      refuse("an object that has \"" + std::string(name) + '"');
    }
    const auto found = json_.find(name);
    if (found == json_.end()) {
      throw Wrong((where_.empty() ? "it" : where_) + " has no \"" + name + '"');
    }
    return {*found, where_ + (where_.empty() ? "" : ".") + name};
  }
  [[nodiscard]] std::vector<Value> list() const {
    if (!json_.is_array()) {
      refuse("a list");
    }
    std::vector<Value> values;
    for (const Json& one : json_) {
      values.emplace_back(one, where_ + '[' + std::to_string(values.size()) + ']');
    }
    return values;
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t least, std::uint64_t most) const {
    const std::uint64_t number = json_.is_number_unsigned() ? json_.get<std::uint64_t>() : 0;
    if (!json_.is_number_unsigned() || number < least || number > most) {
      refuse("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
  }
  [[nodiscard]] std::uint32_t rank_below(std::uint64_t processes) const {
    return static_cast<std::uint32_t>(number(0, processes - 1));
  }
  [[nodiscard]] std::vector<std::uint32_t> ranks_below(std::uint64_t processes) const {
    std::vector<std::uint32_t> ranks;
    for (const Value& one : list()) {
      ranks.push_back(one.rank_below(processes));
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
  [[nodiscard]] bool flag() const {
    if (!json_.is_boolean()) {
      refuse("true or false");
    }
    return json_.get<bool>();
  }
  /// A question mark stands for what cannot be printed.
  [[nodiscard]] std::string text() const {
    if (!json_.is_string()) {
      refuse("a text");
    }
    auto text = json_.get<std::string>();
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }
  [[nodiscard]] std::string text_or_unknown() const { return json_.is_null() ? "?" : text(); }

 private:
  const Json& json_;
  const std::string where_;
};

MapRow row_of(const Value& path, std::uint64_t processes) {
  MapRow row;
  row.from.ranks = {path["rank"].rank_below(processes)};
  row.from.hosts = {path["host"].text()};
  row.from.gids = {path["gid"].text()};
  row.to.hosts = {path["peer_host"].text_or_unknown()};
  row.to.gids = {path["peer_gid"].text()};
  row.is_of_another_job = path["peers_are_of_another_job"].flag();
  row.way.port = path["port"].text();
  row.way.peer_port = path["peer_port"].text_or_unknown();
  row.way.method = path["method"].text();
  row.way.mtu = static_cast<std::uint32_t>(path["mtu"].number(1, 65536));
  row.way.queue_pairs = static_cast<std::uint32_t>(path["queue_pairs"].number(1, 1U << 24));
  row.way.are_shared = path["queue_pairs_are_shared"].flag();
  const Value peers = path["peers"];
  const Value bytes = path["bytes"];
  const std::size_t count = peers.list().size();
  if (count == 0) {
    peers.refuse("a list of at least one rank");
  }
  if (bytes.list().size() != count) {
    bytes.refuse("a list of as many numbers as peers has, " + std::to_string(count));
  }
  for (const std::uint32_t rank : peers.ranks_below(row.is_of_another_job ? kMostRanks : processes)) {
    row.to.ranks.insert(rank);
  }
  for (const Value& one : bytes.list()) {
    row.bytes += one.number(0, std::numeric_limits<std::uint64_t>::max());
  }
  row.connections = count;
  return row;
}

JobMap map_of(const Value& report) {
  JobMap map;
  map.processes = static_cast<std::uint32_t>(report["processes"].number(1, kMostRanks));
  for (const Value& one : report["versions"].list()) {
    map.version += (map.version.empty() ? "" : ", ") + one["version"].text();
  }
  map.is_of_one = report["of_reporter_alone"].flag();
  map.silent = report["silent"].ranks_below(map.processes);
  map.without = report["without_btl_fabric"].ranks_below(map.processes);
  for (const Value& one : report["hosts"].list()) {
    map.hosts.push_back({one["host"].text(), one["ranks"].ranks_below(map.processes)});
  }
  for (const Value& one : report["paths"].list()) {
    map.rows.push_back(row_of(one, map.processes));
  }
  return map;
}

}  // namespace

Result<JobMap> parse_map(std::string_view text) try {
  const Json report = Json::parse(text);
  return map_of(Value(report, ""));
} catch (const Json::parse_error& error) {
  const std::string_view said =
      error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 3: ..."
  const std::size_t begin = said.find("] ");
  return failure("it is no JSON: " + std::string(begin == said.npos ? said : said.substr(begin + 2)));
} catch (const Wrong& error) {
  return failure(error.what());
}

Result<JobMap> read_map(const std::string& file) {
  std::ifstream opened(file);
  const std::string text{std::istreambuf_iterator<char>(opened), {}};
  if (!opened) {
    return failure(file + " cannot be read");
  }
  auto map = parse_map(text);
  if (!map) {
    return failure(file + " is no report of btl_fabric_report FILE.json, or one of an older version", map.error());
  }
  return map;
}

Result<JobMap> map_of_rank(JobMap map, std::uint32_t rank) {
  if (rank >= map.processes) {
    return failure("--rank " + std::to_string(rank) + ": the job's ranks are 0 to " +
                   std::to_string(map.processes - 1));
  }
  std::erase_if(map.rows, [rank](const MapRow& row) { return !row.from.ranks.contains(rank); });
  return map;
}

}  // namespace fabric::info
