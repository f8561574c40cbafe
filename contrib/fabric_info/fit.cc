// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/fit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cpc/queue_pairs/queue_choice.h"

namespace fabric::info {
namespace {

constexpr std::uint64_t kEntry = 64;  ///< of a send, receive or completion queue, bytes

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

}  // namespace

JobNeeds job_needs(const Question& asked, const HostRoom& room) {
  Question question = asked;
  if (!room.has_shared_queues) {
    question.queues = asked.queues.without_shared();
  }
  const QueuePairCounts counts = queue_pairs_of(question);
  // X queues have one send queue to each host, others some to each peer.
  const std::uint64_t connections =
      question.queues.has_xrc() ? counts.senders_per_process : counts.per_process / question.queues.count();
  JobNeeds needs{counts.per_host, 0};
  if (question.queues.has_others()) {  // as the component reckons when it chooses queues
    cpc::QueueRoom reckoned;
    reckoned.settings.costs = room.costs;
    reckoned.settings.max_inline = room.max_inline;
    reckoned.settings.rdma_depth = question.rdma_depth;
    reckoned.link = room.has_shared_queues ? Transport::kRoce : Transport::kIwarp;
    reckoned.processes = std::max<std::int64_t>(1, question.node.processes);
    reckoned.peers =
        question.queues.has_xrc() ? question.hosts * reckoned.processes - 1 : static_cast<std::int64_t>(connections);
    needs.bytes_per_process = cpc::bytes_of_all(question.queues, reckoned);
    return needs;
  }
  for (std::size_t i = 0; i < question.queues.count(); ++i) {
    const QueueNeeds queue = needs_of(question, i, room.costs, room.max_inline);
    needs.bytes_per_process += queue.bytes_per_process + queue.receive_entries * 2 * kEntry;  // each has a completion
    needs.bytes_per_process += connections * (queue.send_entries + queue.completions) * kEntry;
  }
  return needs;
}

Verdict judge(const Question& question, const HostRoom& room) {
  Verdict verdict{shortfalls(question, room), false, {}};
  if (verdict.shortfalls.empty()) {
    return verdict;
  }
  Question without_end = question;
  without_end.memory = 0;
  verdict.is_cached = can_cache(question, room) && shortfalls(without_end, room).size() == verdict.shortfalls.size();
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
          {"shortfalls", verdict.shortfalls},
          {"is_cached", verdict.is_cached},
          {"instead", verdict.instead}};
}

bool fits(const nlohmann::ordered_json& report) {
  const auto fit = [](const nlohmann::ordered_json& one) {
    return !one.contains("fit") || one["fit"]["fits"].get<bool>();
  };
  return fit(report) && std::all_of(report["devices"].begin(), report["devices"].end(), fit);
}

}  // namespace fabric::info
