// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/path_notes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/size_counts.h"

namespace fabric {

void PathNotes::note(const Module& module, const Endpoint& endpoint, std::string_view method) {
  const opal_proc_t* const proc = endpoint.proc();
  const Peer* const peer = proc != nullptr ? Component::get().peer_of(*proc) : nullptr;
  const cpc::ConnectionKey& key = endpoint.key();
  if (peer == nullptr || key.remote_port >= peer->info.ports.size()) {
    return;
  }
  const PortAddress& ours = module.port().address;
  const PortAddress& theirs = peer->info.ports[key.remote_port];
  Note note;
  note.way.port = module.name();
  note.way.gid = ours.gid;
  note.way.peer_gid = theirs.gid;
  note.way.method = method;
  note.way.mtu = 128U << std::min<unsigned>(std::min(ours.mtu, theirs.mtu), 5);
  note.way.are_shared = endpoint.subset.queues().has_xrc();
  note.way.is_of_another_job = key.peer.job != OPAL_PROC_MY_NAME.jobid;
  note.way.queue_pairs = note.way.are_shared ? 1 : static_cast<std::uint32_t>(endpoint.subset.count());
  note.first_module = static_cast<std::uint16_t>(key.local_port - endpoint.owner().number_of_context());
  const std::lock_guard guard(mutex_);
  notes_.insert_or_assign(Connection{key.peer, key.local_port}, std::move(note));
}

/// First the connections of a port with a peer are one, then the peers that are reached in the same way.
std::vector<ReportedPath> PathNotes::take() const {
  struct Sum {
    std::uint32_t queue_pairs = 0;
    std::set<std::uint16_t> first_modules;
  };
  std::map<std::pair<PathWay, ProcessName>, Sum> sums;
  const std::lock_guard guard(mutex_);
  for (const auto& [connection, note] : notes_) {
    PathWay way = note.way;
    Sum& sum = sums[{way, connection.peer}];
    sum.queue_pairs += way.queue_pairs;
    sum.first_modules.insert(note.first_module);
  }
  std::map<PathWay, std::vector<PathPeer>> ways;
  for (const auto& [to_peer, sum] : sums) {
    auto [way, peer] = to_peer;
    way.queue_pairs = sum.queue_pairs;
    PathPeer& added = ways[way].emplace_back(PathPeer{peer.rank, 0});
    for (const std::uint16_t module : sum.first_modules) {
      added.bytes += way.is_of_another_job ? 0 : counted_bytes(peer.rank, module);
    }
  }
  std::vector<ReportedPath> paths;
  for (auto& [way, peers] : ways) {
    std::sort(peers.begin(), peers.end());
    paths.push_back({way, std::move(peers)});
  }
  return paths;
}

}  // namespace fabric
