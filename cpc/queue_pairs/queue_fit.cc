// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/queue_fit.h"

#include <algorithm>
#include <limits>
#include <string>

namespace fabric::cpc {
namespace {

std::string number(std::uint64_t value) {
  return std::to_string(value);
}
std::string name_of(std::size_t queue) {
  return "queue " + std::to_string(queue);
}

bool is_shared(const QueueSpec& spec) noexcept {
  return spec.kind != QueueKind::kPerPeer;
}

std::uint32_t shared_receives(const ReceiveQueues& queues) noexcept {
  std::uint32_t sum = 0;
  for (const QueueSpec& spec : queues.queues()) {
    sum += is_shared(spec) ? spec.rd_num : 0;
  }
  return sum;
}

/// A shared queue with fewer receives, and everything that follows from their number in proportion.
QueueSpec with_receives(QueueSpec spec, std::uint32_t rd_num) noexcept {
  const auto scaled = [&](std::uint32_t count) { return in_proportion(count, rd_num, spec.rd_num); };
  spec.rd_low = std::min(scaled(spec.rd_low), rd_num - 1);
  spec.rd_init = std::max(1U, scaled(spec.rd_init));
  spec.srq_limit = std::max(1U, scaled(spec.srq_limit));
  spec.rd_num = rd_num;
  return spec;
}

class Fitting {
 public:
  Fitting(const ReceiveQueues& queues, Transport link, const QueuePairSettings& settings, const DeviceRoom& device)
      : link_(link), settings_(settings), device_(device) {
    fit_.queues = queues;
    fit_.rdma_depth = settings.rdma_depth;
  }

  Result<QueueFit> run(std::uint32_t cq_size, std::uint32_t peers) && {
    const ReceiveQueues asked = fit_.queues;
    cap_sends();
    for (std::size_t i = 0; i < fit_.queues.count(); ++i) {
      for (Status fits : {fit_message(i), fit_work_requests(i), fit_shared_receives(i)}) {
        if (!fits) {
          return tl::unexpected(std::move(fits).error());
        }
      }
    }
    note_sends(asked);
    if (Status fits = fit_completions(cq_size); !fits) {
      return tl::unexpected(std::move(fits).error());
    }
    share_completion_queues(peers);
    return std::move(fit_);
  }

 private:
  [[nodiscard]] QueueDepths depths(std::size_t index) {
    settings_.rdma_depth = fit_.rdma_depth;
    return queue_depths(fit_.queues, index, link_, settings_);
  }

  [[nodiscard]] bool is_xrc(std::size_t index) const { return fit_.queues[index].kind == QueueKind::kXrc; }

  void change(std::string what, std::uint64_t given, std::uint64_t wanted, const std::string& because) {
    fit_.changes.push_back(
        {std::move(what), static_cast<std::int64_t>(given),
         number(wanted) + (wanted > given ? " were asked for, and " : " were asked for, but ") + because});
  }

  Status fit_message(std::size_t index) const {
    const std::uint64_t bytes = std::uint64_t{fit_.queues[index].size} + kHandshakeBytes;
    if (bytes <= device_.max_message) {
      return {};
    }
    return failure(name_of(index) + " of btl_fabric_receive_queues has messages of " + number(bytes) +
                   " bytes with our header, and the longest of the device is of " + number(device_.max_message));
  }

  /// More sends than the device has work requests are never possible.
  void cap_sends() {
    for (std::size_t i = 0; i < fit_.queues.count(); ++i) {
      if (is_shared(fit_.queues[i])) {
        set_sends(i, std::clamp(fit_.queues[i].sd_max, 1U, std::max(device_.max_qp_wr, 1U)));
      }
    }
  }

  void set_sends(std::size_t index, std::uint32_t sends) {
    QueueSpec spec = fit_.queues[index];
    spec.sd_max = sends;
    fit_.queues = fit_.queues.with(index, spec);
  }

  /// The queue whose sends go down where `index` does not fit: of X queues, which share a sender, the one with most.
  [[nodiscard]] std::size_t queue_to_lower(std::size_t index) const {
    if (!is_xrc(index)) {
      return index;
    }
    std::size_t most = fit_.queues.count() - fit_.queues.xrc_count();  // they come last
    for (std::size_t i = most; i < fit_.queues.count(); ++i) {
      most = fit_.queues[i].sd_max > fit_.queues[most].sd_max ? i : most;
    }
    return most;
  }

  /// RDMA goes down first, then the messages under way of a shared queue.
  Status fit_work_requests(std::size_t index) {
    const std::uint32_t most = device_.max_qp_wr;
    const std::uint32_t rdma = fit_.rdma_depth;
    const bool carries_rdma = is_xrc(index) || index == rdma_queue(fit_.queues);
    while (depths(index).send > most && carries_rdma && fit_.rdma_depth > 1) {
      --fit_.rdma_depth;
    }
    if (fit_.rdma_depth < rdma) {
      change("RDMA operations under way to a peer", fit_.rdma_depth, rdma, because_of_work_requests());
    }
    for (std::size_t lowered = queue_to_lower(index);
         depths(index).send > most && is_shared(fit_.queues[lowered]) && fit_.queues[lowered].sd_max > 1;
         lowered = queue_to_lower(index)) {
      set_sends(lowered, fit_.queues[lowered].sd_max - 1);
    }
    const QueueDepths left = depths(index);
    if (left.send <= most && left.receive <= most) {
      return {};
    }
    return failure(name_of(index) + " of btl_fabric_receive_queues needs " + number(std::max(left.send, left.receive)) +
                   " work requests" + (is_shared(fit_.queues[index]) ? "" : " (rd_num + rd_rsv, and some of our own)") +
                   ", and " + because_of_work_requests());
  }

  [[nodiscard]] std::string because_of_work_requests() const {
    return "the device takes " + number(device_.max_qp_wr) + " work requests per queue pair";
  }

  void note_sends(const ReceiveQueues& asked) {
    for (std::size_t i = 0; i < asked.count(); ++i) {
      if (fit_.queues[i].sd_max < asked[i].sd_max) {
        change("sd_max of " + name_of(i), fit_.queues[i].sd_max, asked[i].sd_max, because_of_work_requests());
      }
    }
  }

  Status fit_shared_receives(std::size_t index) {
    const QueueSpec spec = fit_.queues[index];
    if (!is_shared(spec) || spec.rd_num <= device_.max_srq_wr) {
      return {};
    }
    if (device_.max_srq_wr == 0) {
      return failure(name_of(index) +
                     " of btl_fabric_receive_queues is shared, and the device has no shared receive queues");
    }
    change("rd_num of " + name_of(index), device_.max_srq_wr, spec.rd_num,
           "the device takes " + number(device_.max_srq_wr) + " receives per shared queue");
    fit_.queues = fit_.queues.with(index, with_receives(spec, device_.max_srq_wr));
    return {};
  }

  /// A completion queue has room for all shared receives and at least the largest queue pair.
  Status fit_completions(std::uint32_t cq_size) {
    std::uint32_t queue_pair = 0;
    for (std::size_t i = 0; i < fit_.queues.count(); ++i) {
      queue_pair = std::max(queue_pair, depths(i).completions().own);
    }
    const std::string because = "a completion queue of the device has " + number(device_.max_cqe) + " entries";
    const std::uint32_t room = device_.max_cqe > queue_pair ? device_.max_cqe - queue_pair : 0;
    const std::uint32_t shared = shared_receives(fit_.queues);
    for (std::size_t i = 0; shared > room && i < fit_.queues.count(); ++i) {
      const QueueSpec spec = fit_.queues[i];
      const auto part = static_cast<std::uint32_t>(std::uint64_t{spec.rd_num} * room / shared);
      if (is_shared(spec) && part > 0) {
        change("rd_num of " + name_of(i), part, spec.rd_num, because);
        fit_.queues = fit_.queues.with(i, with_receives(spec, part));
      }
    }
    const std::uint32_t needed = queue_pair + shared_receives(fit_.queues);
    if (needed > device_.max_cqe) {
      return failure("a queue pair of btl_fabric_receive_queues can have " + number(queue_pair) +
                     " completions, the shared queues " + number(needed - queue_pair) + ", and " + because);
    }
    fit_.cq_entries = std::clamp(cq_size, needed, device_.max_cqe);
    if (fit_.cq_entries < cq_size) {
      change("completion queue entries", fit_.cq_entries, cq_size, because);
    } else if (fit_.cq_entries > cq_size) {
      change("completion queue entries", fit_.cq_entries, cq_size,
             "a queue pair and the shared queues can have as many completions");
    }
    return {};
  }

  void share_completion_queues(std::uint32_t peers) {
    constexpr std::int64_t kMost = CompletionQueueSet::kMaxQueues;
    const std::uint64_t shared = shared_receives(fit_.queues);
    std::uint64_t all = 0;
    std::uint64_t sends = 0;
    for (std::size_t i = 0; i < fit_.queues.count(); ++i) {
      if (i > 0 && is_xrc(i) && is_xrc(i - 1)) {
        continue;  // all of them have one sender
      }
      all += std::uint64_t{peers} * depths(i).completions().own;
      sends += std::uint64_t{peers} * depths(i).shared_sends;
      if (is_xrc(i) || !fit_.queues.has_xrc()) {  // others beside X queues are for few peers
        fit_.entries_at_first += std::uint64_t{peers} * depths(i).completions().own;
      }
    }
    fit_.most_cqs = static_cast<std::uint32_t>(std::clamp<std::int64_t>(device_.completion_queues, 1, kMost));
    all += std::min<std::uint64_t>(sends, fit_.most_cqs * CompletionQueueSet::Limits{}.shared_sends);
    const std::uint64_t others = (fit_.most_cqs - 1) * (fit_.cq_entries - shared);
    const std::uint64_t left = shared + (all > others ? all - others : 0);
    fit_.last_cq_entries =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(left, fit_.cq_entries, device_.max_cqe));
    if (fit_.last_cq_entries > fit_.cq_entries) {
      change("entries of the last completion queue", fit_.last_cq_entries, fit_.cq_entries,
             number(peers) + " peers share " + number(fit_.most_cqs) + " completion queues");
    }
  }

  Transport link_;
  QueuePairSettings settings_;
  DeviceRoom device_;
  QueueFit fit_;
};

}  // namespace

namespace {

/// Those beyond the ones that a queue pair owns room for.
std::uint32_t shared_of(const QueueSpace& sends) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(sends.entries() - sends.few_entries(kOwnSends),
                                                            std::numeric_limits<std::int32_t>::max()));
}

/// Lists are read before anything has been compared with a device: their sums are no longer right beyond this, but large.
std::uint32_t entries_with(const QueueSpace& operations, std::uint32_t own) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::uint32_t>(std::min(operations.entries() + own, kMost));
}

}  // namespace

QueueDepths queue_depths(const ReceiveQueues& queues, std::size_t index, Transport link,
                         const QueuePairSettings& settings) noexcept {
  if (queues[index].kind == QueueKind::kXrc) {
    const QueueSpace sends = sender_space(queues, settings.costs, settings.max_inline, settings.rdma_depth);
    return {entries_with(sends, kMarkerEntries), 0, shared_of(sends), 0};
  }
  const QueueSpec& queue = queues[index];
  const QueueSpace sends = send_space(queues, index, settings.costs, settings.max_inline, settings.rdma_depth);
  const QueueSpace receives = QueueSpace::for_receives(queue.receive_depth(), settings.costs);
  const std::uint32_t handshake = index == 0 || link == Transport::kIwarp ? kHandshakeEntries : 0;
  return {entries_with(sends, kMarkerEntries + handshake),
          entries_with(receives, queue.kind == QueueKind::kPerPeer ? handshake : 0), shared_of(sends),
          queue.receives_later()};
}

Result<QueueFit> fit_queues(const ReceiveQueues& queues, Transport link, const QueuePairSettings& settings,
                            std::uint32_t cq_size, std::uint32_t peers, const DeviceRoom& device) {
  return Fitting(queues, link, settings, device).run(cq_size, peers);
}

RdmaLimits rdma_limits(Transport link, std::uint64_t max_message, std::uint32_t max_inline, int device_reads) noexcept {
  RdmaLimits limits;
  limits.link = link;
  limits.max_sge = kSendSges;
  limits.max_read_sge = 1;  // there is one piece of memory, wherever it goes
  limits.max_message = max_message;
  limits.max_inline = max_inline;
  limits.outstanding_reads = static_cast<std::uint32_t>(std::clamp(device_reads, 1, kReadsAsked));
  return limits;
}

}  // namespace fabric::cpc
