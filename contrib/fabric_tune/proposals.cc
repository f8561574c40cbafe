// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/proposals.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "btl_fabric/base/param_values.h"
#include "cpc/queue_pairs/queue_choice.h"

namespace fabric::tune {
namespace {

constexpr std::uint64_t kHeaders = 128;             // of the PML and ours, in front of a message's data
constexpr std::uint64_t kLongestEager = 64 * 1024;  // beyond, two copies cost more than any handshake
constexpr std::uint64_t kShortEager = 4096;
constexpr std::uint64_t kLargestInline = 1024;
constexpr int kDeepestRdma = 1024;
constexpr std::uint32_t kMostPreconnected = 64;
constexpr double kMany = 0.1;  // of all operations
constexpr double kMost = 0.9;

std::uint64_t sum_of(const std::vector<SizeCount>& sizes, std::uint64_t above, std::uint64_t up_to) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}, [=](std::uint64_t sum, const SizeCount& one) {
    return one.up_to > above && one.up_to <= up_to ? sum + one.count : sum;
  });
}

/// Messages, reads and writes.
std::uint64_t all_of(const Recorded& recorded) {
  return sum_of(recorded.messages, 0, UINT64_MAX) + sum_of(recorded.reads, 0, UINT64_MAX) +
         sum_of(recorded.writes, 0, UINT64_MAX);
}

bool are_many(std::uint64_t count, std::uint64_t of, double part = kMany) {
  return count > 0 && static_cast<double>(count) >= part * static_cast<double>(of);
}

const Wait* wait_that_matters(const Recorded& recorded, const std::string& counter) {
  const auto found = std::find_if(recorded.waits.begin(), recorded.waits.end(),
                                  [&](const Wait& one) { return one.matters && one.counter == counter; });
  return found == recorded.waits.end() ? nullptr : &*found;
}

/// What a number has now: what somebody has set, or the default.
std::int64_t number_now(const Recorded& recorded, const std::string& name) {
  for (const ParamSpec& spec : kParamTable) {
    if ("btl_fabric_" + std::string(spec.name) == name && spec.number != nullptr) {
      const Setting* const set = recorded.setting(name);
      return set != nullptr ? read_value(spec, set->value.c_str()).value_or(spec.default_number) : spec.default_number;
    }
  }
  return 0;
}

std::string times(std::uint64_t count, const std::string& what) {
  return grouped_digits(count) + " " + what;
}

// ---- Receive queues

/// Most receives of this queue that the memory is enough for.
std::uint32_t most_receives(const QueueSpec& spec, std::uint64_t peers) {
  const std::uint64_t each =
      std::uint64_t{spec.size} * (spec.kind == QueueKind::kPerPeer ? std::max<std::uint64_t>(1, peers) : 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kMostReceiveMemory / each, 1, 16384));
}

/// A queue of so many receives, all posted at first, with the other fields in proportion.
QueueSpec with_receives(const QueueSpec& spec, std::uint32_t count) {
  const std::string text =
      std::string(1, static_cast<char>(spec.kind)) + ',' + std::to_string(spec.size) + ',' + std::to_string(count);
  QueueSpec made = ReceiveQueues::parse(text).value()[0];
  made.rd_init = count;
  if (spec.kind != QueueKind::kPerPeer) {
    made.sd_max = std::min(std::max(spec.sd_max, made.sd_max), count);
  }
  return made;
}

/// Four times as many receives, as far as there is memory.
QueueSpec deeper(const QueueSpec& spec, std::uint64_t peers) {
  constexpr std::uint32_t kAtLeast = 64;
  const std::uint32_t most = std::max(most_receives(spec, peers), spec.rd_num);
  const std::uint32_t count = std::min(most, std::max(kAtLeast, spec.rd_num * 4));
  return count > spec.rd_num ? with_receives(spec, count) : spec;
}

QueueSpec with_more_sends(const QueueSpec& spec, std::uint64_t peers) {
  if (spec.kind == QueueKind::kPerPeer) {
    return deeper(spec, peers);
  }
  QueueSpec made = spec.sd_max == spec.rd_num ? deeper(spec, peers) : spec;
  made.sd_max = std::min(made.rd_num, std::max(32U, spec.sd_max * 4));
  return made;
}

QueueSpec with_more_at_first(const QueueSpec& spec, std::uint64_t peers) {
  if (spec.rd_init == spec.rd_num) {
    return deeper(spec, peers);
  }
  QueueSpec made = spec;
  made.rd_init = spec.rd_num;
  return made;
}

/// Which counter calls for what.
struct Repair {
  const char* counter;
  QueueSpec (*repair)(const QueueSpec&, std::uint64_t peers);
  const char* what;
};
constexpr std::array kRepairs{
    Repair{"waits_for_credit", with_more_sends, "messages waited for a credit"},
    Repair{"waits_for_slot", with_more_sends, "messages waited for room in the send queue"},
    Repair{"srq_limit_events", with_more_at_first, "times a shared queue ran low"},
    Repair{"receive_queues_grown", with_more_at_first, "times a queue had to grow"},
    Repair{"rdma_held", with_more_sends, "reads and writes were held back, since no message could follow them"},
};

/// The index in the list of a queue of the report, which tells those that are run: on iWARP shared ones are not.
std::size_t index_of(const ReceiveQueues& list, const std::string& queue) {
  if (queue.empty()) {
    return list.smallest_fitting(0);  // the one for the shortest messages
  }
  const ReceiveQueues run = list.without_shared();
  for (std::size_t i = 0; i < list.count(); ++i) {
    const std::array<std::uint8_t, 1> alone{static_cast<std::uint8_t>(i)};
    if (queue == list.only(alone).canonical() || queue == run.only(alone).canonical()) {
      return i;
    }
  }
  return list.count();
}

Proposal starved_queues(const Recorded& recorded) {
  Proposal proposal;
  const std::string better = repaired(recorded, proposal).canonical();
  if (better != recorded.queues.canonical()) {
    proposal.settings[kReceiveQueues] = better;
  }
  return proposal;
}

/// A list that somebody has set once is often older than the choice that the component makes by itself.
Proposal chosen_queues(const Recorded& recorded) {
  const Setting* const set = recorded.setting(kReceiveQueues);
  if (set == nullptr || set->value == cpc::kAutoQueues) {
    return {};
  }
  return {{{kReceiveQueues, cpc::kAutoQueues}},
          "the list " + set->value + " is set, which the component may choose better",
          {"waits_for_credit", "waits_for_slot", "srq_limit_events", "receive_queues_grown"}};
}

/// A job of many processes has no receives of its own for each peer; but here each process talks to few.
Proposal own_receives(const Recorded& recorded) {
  constexpr std::uint64_t kSmall = 128;
  const Setting* const set = recorded.setting(kReceiveQueues);
  const bool has_own = recorded.queues.count() > 0 && recorded.queues[0].kind == QueueKind::kPerPeer;
  if ((set != nullptr && set->value != cpc::kAutoQueues) || has_own || recorded.is_iwarp || recorded.most_peers == 0 ||
      recorded.most_peers > static_cast<std::uint64_t>(cpc::kMostPeersWithOwnReceives) ||
      !are_many(sum_of(recorded.messages, 0, kSmall), all_of(recorded))) {
    return {};
  }
  return {{{kReceiveQueues, cpc::queues_of_level(0).canonical()}},
          "no process talks to more than " + std::to_string(recorded.most_peers) +
              " others, so that receives for each of them alone cost little, and small messages are many",
          {}};
}

// ---- Limits of protocols

/// Messages that are read though they are hardly longer than those which are sent at once.
Proposal longer_eager(const Recorded& recorded) {
  const std::uint64_t now = recorded.limit(kEagerLimit);
  const std::uint64_t most = std::min<std::uint64_t>(kLongestEager, recorded.queues.largest());
  const std::uint64_t read = sum_of(recorded.reads, now, most) + sum_of(recorded.writes, now, most);
  if (!are_many(read, all_of(recorded), kMany / 2)) {
    return {};
  }
  for (std::uint64_t size = 1; size <= most; size *= 2) {
    const std::uint64_t below = sum_of(recorded.reads, now, size) + sum_of(recorded.writes, now, size);
    const std::uint64_t limit = std::min(size + kHeaders, most);
    if (limit > now && are_many(below, read, kMost)) {
      return {{{kEagerLimit, std::to_string(limit)}},
              times(below, "reads and writes are of ") + std::to_string(now) + " to " + std::to_string(size) +
                  " bytes, and could be sent at once",
              {}};
    }
  }
  return {};
}

Proposal shorter_eager(const Recorded& recorded) {
  const std::uint64_t now = recorded.limit(kEagerLimit);
  const std::uint64_t copied = sum_of(recorded.messages, kShortEager, UINT64_MAX);
  if (now <= kShortEager || !are_many(copied, all_of(recorded)) || !longer_eager(recorded).settings.empty()) {
    return {};
  }
  return {{{kEagerLimit, std::to_string(kShortEager)}},
          times(copied, "messages are longer than 4096 bytes, and are copied twice; they could be read"),
          {}};
}

Proposal longer_inline(const Recorded& recorded) {
  constexpr std::uint64_t kAsked = 256;  // of the device, by default
  const std::uint64_t now = recorded.limit(kInlineSize);
  if (number_now(recorded, kInlineSize) < 0 && now < kAsked) {
    return {};  // it copies no more
  }
  for (std::uint64_t size = kLargestInline; now > 0 && size > now; size /= 2) {
    if (are_many(sum_of(recorded.messages, size / 2, size), all_of(recorded))) {
      return {{{kInlineSize, std::to_string(size)}},
              times(sum_of(recorded.messages, now, size), "messages are of ") + std::to_string(now) + " to " +
                  std::to_string(size) + " bytes, and leave from a buffer instead of the request",
              {}};
    }
  }
  return {};
}

Proposal copied_always(const Recorded& recorded) {
  const Wait* const wait = wait_that_matters(recorded, "registrations_at_limit");
  const std::uint64_t in_place = recorded.total("messages_sent_in_place");
  const std::uint64_t registered = recorded.total("registrations");
  if (number_now(recorded, kInPlaceSize) == 0 ||
      (wait == nullptr &&
       (!are_many(in_place, recorded.operations, 0.01) || registered < 100 || !are_many(registered, in_place)))) {
    return {};
  }
  return {{{kInPlaceSize, "0"}},
          wait != nullptr ? times(wait->total, "times all memory regions of the process were in use")
                          : times(registered, "registrations of memory for ") + times(in_place, "messages"),
          {"registrations_at_limit"}};
}

// ---- Others

/// Four times as much of something that is counted, up to `most`.
Proposal more_of(const Recorded& recorded, const char* name, const char* counter, const char* what, std::int64_t most) {
  const Wait* const wait = wait_that_matters(recorded, counter);
  const std::int64_t now = number_now(recorded, name);
  if (wait == nullptr || now <= 0 || now >= most) {
    return {};
  }
  return {{{name, std::to_string(std::min(most, now * 4))}}, times(wait->total, what), {counter}};
}

Proposal more_send_buffers(const Recorded& recorded) {
  return more_of(recorded, kSendBuffers, "waits_for_buffer", "times a message found no send buffer", 1 << 20);
}

Proposal deeper_rdma(const Recorded& recorded) {
  return more_of(recorded, kRdmaDepth, "rdma_queued", "reads and writes waited for others", kDeepestRdma);
}

Proposal preconnected(const Recorded& recorded) {
  const Wait* const wait = wait_that_matters(recorded, "waits_for_connection");
  if (wait == nullptr || recorded.processes > kMostPreconnected) {
    return {};
  }
  return {{{kPreconnect, "1"}}, times(wait->total, "messages waited for their connection"), {"waits_for_connection"}};
}

constexpr std::array<Proposal (*)(const Recorded&), 9> kRules{starved_queues,    chosen_queues, own_receives,
                                                              longer_eager,      shorter_eager, longer_inline,
                                                              more_send_buffers, deeper_rdma,   copied_always};

}  // namespace

ReceiveQueues repaired(const Recorded& recorded, Proposal& reasons) {
  ReceiveQueues list = recorded.queues;
  for (const Repair& one : kRepairs) {
    const Wait* const wait = wait_that_matters(recorded, one.counter);
    const std::size_t index = wait == nullptr ? list.count() : index_of(recorded.queues, wait->queue);
    if (index == list.count() || list[index] != recorded.queues[index]) {
      continue;  // nobody waited, or that queue has been repaired already
    }
    const QueueSpec better = one.repair(list[index], recorded.most_peers);
    if (better == list[index]) {
      continue;
    }
    list = list.with(index, better);
    reasons.why += (reasons.why.empty() ? "" : "; ") + times(wait->total, one.what) +
                   (wait->queue.empty() ? "" : ", most of them on " + wait->queue);
    reasons.counters.emplace_back(one.counter);
  }
  return list;
}

std::vector<Proposal> propose(const Recorded& recorded) {
  std::vector<Proposal> proposals;
  const auto add = [&proposals](Proposal one) {
    const auto is_same = [&one](const Proposal& other) { return other.settings == one.settings; };
    if (!one.settings.empty() && std::none_of(proposals.begin(), proposals.end(), is_same)) {
      proposals.push_back(std::move(one));
    }
  };
  for (const auto& rule : kRules) {
    add(rule(recorded));
  }
  add(preconnected(recorded));
  return proposals;
}

Proposal further(const Proposal& tried, const Recorded& with_it) {
  for (const auto& rule : {starved_queues, more_send_buffers, deeper_rdma}) {
    Proposal next = rule(with_it);
    const auto concerns = [&tried](const auto& one) { return tried.settings.contains(one.first); };
    if (next.settings.empty() || !std::all_of(next.settings.begin(), next.settings.end(), concerns) ||
        next.settings == tried.settings || tried.settings.begin()->second == cpc::kAutoQueues) {
      continue;
    }
    next.why = tried.why;
    for (const std::string& counter : tried.counters) {
      if (std::find(next.counters.begin(), next.counters.end(), counter) == next.counters.end()) {
        next.counters.push_back(counter);
      }
    }
    return next;
  }
  return {};
}

}  // namespace fabric::tune
