// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/job_paths.h"

#include <algorithm>
#include <map>
#include <utility>

#include "btl_fabric/mca/job_report.h"
#include "common/ports/gid_choice.h"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

/// Where a peer is: null where nobody has told.
struct Place {
  Json host;
  Json port;
  bool operator<(const Place& other) const { return std::tie(host, port) < std::tie(other.host, other.port); }
};

using ByRank = std::map<std::uint32_t, const ProcessReport*>;

Place place_of(const ByRank& processes, const PathWay& way, std::uint32_t rank) {
  const auto peer = way.is_of_another_job ? processes.end() : processes.find(rank);
  if (peer == processes.end()) {
    return {};
  }
  const auto& ports = peer->second->ports;
  const auto port = std::find_if(ports.begin(), ports.end(),
                                 [&way](const ReportedPort& one) { return one.address.gid == way.peer_gid; });
  return {peer->second->host, port == ports.end() ? Json() : Json(port->name)};
}

Json row(const ProcessReport& process, const PathWay& way, const Place& place) {
  return {{"rank", process.rank},
          {"host", process.host},
          {"port", way.port},
          {"gid", to_string(way.gid)},
          {"peer_host", place.host},
          {"peer_port", place.port},
          {"peer_gid", to_string(way.peer_gid)},
          {"peers_are_of_another_job", way.is_of_another_job},
          {"method", way.method},
          {"mtu", way.mtu},
          {"queue_pairs", way.queue_pairs},
          {"queue_pairs_are_shared", way.are_shared},
          {"peers", Json::array()},
          {"bytes", Json::array()}};
}

}  // namespace

Json encode_paths(const std::vector<ReportedPath>& paths) {
  Json json = Json::array();
  for (const auto& [way, peers] : paths) {
    Json of = Json::array();
    for (const PathPeer& peer : peers) {
      of.push_back({peer.rank, peer.bytes});
    }
    json.push_back({way.port, way.gid.raw, way.peer_gid.raw, way.method, way.mtu, way.are_shared, way.is_of_another_job,
                    way.queue_pairs, std::move(of)});
  }
  return json;
}

std::vector<ReportedPath> decode_paths(const Json& json) {
  std::vector<ReportedPath> paths;
  for (const Json& one : json) {
    auto& [way, peers] = paths.emplace_back();
    one.at(0).get_to(way.port);
    one.at(1).get_to(way.gid.raw);
    one.at(2).get_to(way.peer_gid.raw);
    one.at(3).get_to(way.method);
    one.at(4).get_to(way.mtu);
    one.at(5).get_to(way.are_shared);
    one.at(6).get_to(way.is_of_another_job);
    one.at(7).get_to(way.queue_pairs);
    for (const Json& peer : one.at(8)) {
      peers.push_back({peer.at(0), peer.at(1)});
    }
  }
  return paths;
}

Json paths_as_json(const JobReport& job) {
  ByRank processes;
  for (const ProcessReport& one : job.reports) {
    processes[one.rank] = &one;
  }
  Json rows = Json::array();
  for (const ProcessReport& process : job.reports) {
    for (const auto& [way, peers] : process.paths) {
      std::map<Place, Json> by_place;
      for (const PathPeer& peer : peers) {
        const Place place = place_of(processes, way, peer.rank);
        Json& of = by_place.try_emplace(place, row(process, way, place)).first->second;
        of["peers"].push_back(peer.rank);
        of["bytes"].push_back(peer.bytes);
      }
      for (auto& [place, of] : by_place) {
        rows.push_back(std::move(of));
      }
    }
  }
  return rows;
}

}  // namespace fabric
