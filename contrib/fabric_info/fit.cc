// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/fit.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fabric::info {
namespace {

/// What is proposed where a list is too much, the fastest first: shared receives alone, one queue for everything, queue pairs that the
/// processes of a host share, few receives.
constexpr std::array kProposals = {
    "S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64",
    "S,12288,1024,1008,64",
    "X,2048,1024,1008,64:X,12288,1024,1008,64:X,65536,512,448,64",
    "S,12288,256,240,64",
    "X,12288,256,240,64",
};

std::vector<std::string> shortfalls(const Question& question, const HostRoom& room) {
  std::vector<std::string> found;
  if (room.queues) {
    if (const auto run = run_with(question, room); !run) {
      found.push_back(run.error().text);
    }
  }
  const JobNeeds needs = job_needs(question, room);
  if (room.queue_pairs && needs.queue_pairs > *room.queue_pairs) {
    found.push_back(std::to_string(needs.queue_pairs) + " queue pairs on each host, and the device has " +
                    std::to_string(*room.queue_pairs));
  }
  if (question.memory != 0 && needs.bytes_per_process > question.memory) {
    found.push_back(std::to_string(needs.bytes_per_process) + " bytes in each process, and " +
                    std::to_string(question.memory) + " are allowed");
  }
  return found;
}

/// Each process has queue pairs for two connections at least, which is all that it takes.
bool can_cache(const Question& question, const HostRoom& room) {
  const auto shares = static_cast<std::uint64_t>(std::max<std::int64_t>(1, question.node.processes)) *
                      static_cast<std::uint64_t>(contexts_of(question));
  return room.queue_pairs && !question.queues.has_xrc() && *room.queue_pairs / shares >= 2 * question.queues.count();
}

nlohmann::ordered_json by_part(const cpc::MemoryParts& parts) {
  return {{"receive_buffers", parts.receive_buffers},
          {"fragments", parts.fragments},
          {"send_entries", parts.send_entries},
          {"receive_entries", parts.receive_entries},
          {"completion_entries", parts.completion_entries},
          {"objects", parts.objects},
          {"registrations", parts.registrations},
          {"sum", parts.sum()}};
}

/// As the component would: on iWARP all queues are P queues.
Transport transport_of(const HostRoom& room) noexcept {
  return room.has_shared_queues ? Transport::kRoce : Transport::kIwarp;
}

}  // namespace

Result<cpc::QueueFit> run_with(const Question& question, const HostRoom& room) {
  cpc::QueuePairSettings settings;
  settings.costs = room.costs;
  settings.max_inline = room.max_inline;
  settings.rdma_depth = question.rdma_depth;
  const ReceiveQueues run = room.has_shared_queues ? question.queues : question.queues.without_shared();
  return cpc::fit_queues(run, transport_of(room), settings, question.cq_size, 1, *room.queues);
}

JobNeeds job_needs(const Question& asked, const HostRoom& room) {
  Question question = asked;
  if (!room.has_shared_queues) {
    question.queues = asked.queues.without_shared();
  }
  cpc::QueueRoom room_of_process;  // as the component reckons when it chooses queues
  room_of_process.settings.costs = room.costs;
  room_of_process.settings.max_inline = room.max_inline;
  room_of_process.settings.rdma_depth = question.rdma_depth;
  room_of_process.link = transport_of(room);
  room_of_process.processes = std::max<std::int64_t>(1, question.node.processes);
  room_of_process.peers = question.hosts * room_of_process.processes - 1;
  JobNeeds needs{queue_pairs_of(question).per_host, 0,
                 cpc::queue_demand(question.queues, room_of_process.link, room_of_process.settings)};
  const std::uint64_t shared = needs.memory.shared.sum();
  const std::uint64_t connections = cpc::bytes_of_all(question.queues, room_of_process) - shared;
  needs.bytes_per_process = shared + connections * static_cast<std::uint64_t>(contexts_of(question));
  return needs;
}

Verdict judge(const Question& question, const HostRoom& room) {
  Verdict verdict{shortfalls(question, room), false, {}};
  if (verdict.shortfalls.empty()) {
    return verdict;
  }
  Question any_memory = question;
  any_memory.memory = 0;
  HostRoom any_queues = room;
  any_queues.queues.reset();
  verdict.is_cached =
      can_cache(question, room) && shortfalls(any_memory, any_queues).size() == verdict.shortfalls.size();
  for (const char* const proposal : kProposals) {
    Question other = question;
    other.queues = ReceiveQueues::parse(proposal).value();
    if ((room.has_xrc || !other.queues.has_xrc()) && shortfalls(other, room).empty()) {
      verdict.instead = proposal;
      break;
    }
  }
  return verdict;
}

nlohmann::ordered_json as_json(const Question& question, const HostRoom& room) {
  const JobNeeds needs = job_needs(question, room);
  const Verdict verdict = judge(question, room);
  return {{"fits", verdict.shortfalls.empty()},
          {"queue_pairs_per_host", needs.queue_pairs},
          {"bytes_per_process", needs.bytes_per_process},
          {"per_connection", by_part(needs.memory.per_peer)},
          {"per_host", by_part(needs.memory.per_host)},
          {"shared", by_part(needs.memory.shared)},
          {"shortfalls", verdict.shortfalls},
          {"is_cached", verdict.is_cached},
          {"instead", verdict.instead}};
}

bool fits(const nlohmann::ordered_json& report) {
  const auto fit = [](const nlohmann::ordered_json& one) {
    return !one.contains("error") && (!one.contains("fit") || one["fit"]["fits"].get<bool>());
  };
  return fit(report) && std::all_of(report["devices"].begin(), report["devices"].end(), fit);
}

}  // namespace fabric::info
