// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/contexts.h"

#include <algorithm>

namespace fabric {
namespace {

/// One process's part of something the processes of a node share. At least one, if there is any: who comes last may
/// then find nothing left, which is reported when it happens.
std::int64_t part_of(std::int64_t all, std::int64_t processes) noexcept {
  return all <= 0 ? 0 : std::max<std::int64_t>(1, all / std::max<std::int64_t>(1, processes));
}

std::int64_t at_least_one(std::int64_t count) noexcept {
  return std::max<std::int64_t>(1, count);
}

/// Contexts of one endpoint: the wanted number, or, for -1, the most.
std::int64_t contexts_wanted(std::int64_t wanted, std::int64_t most) noexcept {
  return wanted < 0 ? at_least_one(most) : std::clamp<std::int64_t>(wanted, 1, at_least_one(most));
}

/// The same of receive contexts, where `tx` transmit contexts are had.
std::int64_t receive_contexts_wanted(std::int64_t wanted, std::int64_t tx, std::int64_t most) noexcept {
  return std::max(tx, wanted == 0 ? tx : contexts_wanted(wanted, most));
}

ContextCount count_of(std::int64_t total, std::int64_t optimal) noexcept {
  return {total, std::min(total, optimal)};
}

Grant shared_grant(const char* what, std::int64_t all, const NodeShare& node) {
  const std::int64_t part = part_of(all, node.processes);
  std::string why = std::to_string(all) + " of the device";
  if (node.processes > 1) {
    why += ", shared by " + std::to_string(node.processes) + " processes of this node";
  }
  return {what, part, std::move(why)};
}

Grant context_grant(const char* what, std::int64_t wanted, std::int64_t given, std::int64_t most) {
  std::string why;
  if (wanted < 0) {
    why = "the most was asked for";
  } else if (given < wanted) {
    why = std::to_string(wanted) + " were asked for, and " + std::to_string(most) + " is the most";
  } else {
    why = "as asked for";
  }
  return {what, given, std::move(why)};
}

Grant receive_context_grant(std::int64_t wanted, std::int64_t given, std::int64_t most) {
  const char* const what = "receive contexts per endpoint";
  if (wanted == 0) {
    return {what, given, "as many as transmit contexts"};
  }
  if (wanted > 0 && given > wanted) {
    return {what, given,
            std::to_string(wanted) +
                " were asked for, but a queue pair receives where it sends: as many as transmit contexts"};
  }
  return context_grant(what, wanted, given, most);
}

}  // namespace

DeviceFacts facts_of(const ibv_device_attr& attributes) noexcept {
  return {attributes.max_qp,  attributes.max_cq, attributes.max_cqe,
          attributes.max_srq, attributes.max_mr, attributes.max_qp_wr};
}

DomainAttributes domain_attributes(const DeviceFacts& device, const NodeShare& node, const QueuePairUse& use,
                                   const EndpointAttributes& wanted) noexcept {
  DomainAttributes result;
  const std::int64_t queue_pairs = part_of(device.max_qp, node.processes);
  // A verbs queue pair sends and receives, so transmit and receive contexts come in pairs.
  const std::int64_t contexts = queue_pairs / at_least_one(use.queue_pairs_per_context);
  const std::int64_t per_endpoint = std::min(contexts, kMostContextsPerEndpoint);
  // Threads beyond the cores only wait for each other.
  result.ep_tx_ctx_cnt = count_of(per_endpoint, at_least_one(node.cores));
  result.ep_rx_ctx_cnt = count_of(per_endpoint, at_least_one(node.cores));
  const std::int64_t tx = contexts_wanted(wanted.tx_ctx_cnt, per_endpoint);
  const std::int64_t rx = receive_contexts_wanted(wanted.rx_ctx_cnt, tx, per_endpoint);
  const std::int64_t used = std::max(tx, rx);
  result.ep_cnt = count_of(contexts / at_least_one(used), contexts / at_least_one(used));
  result.tx_ctx_cnt = count_of(result.ep_cnt.total * tx, result.ep_cnt.optimal * tx);
  result.rx_ctx_cnt = count_of(result.ep_cnt.total * rx, result.ep_cnt.optimal * rx);
  // One queue per context that is polled by a thread of its own is best; more only have to be polled too.
  result.cq_cnt = count_of(part_of(device.max_cq, node.processes), at_least_one(used));
  const std::int64_t entries = std::min(use.entries_per_cq, device.max_cqe);
  result.cq_ctx_cnt =
      count_of(entries / at_least_one(use.entries_per_context), entries / at_least_one(use.entries_per_context));
  return result;
}

ResourceManager::ResourceManager(const DeviceFacts& device, const NodeShare& node, const QueuePairUse& use,
                                 const EndpointAttributes& wanted)
    : attributes_(domain_attributes(device, node, use, wanted)) {
  granted_.tx_ctx_cnt = contexts_wanted(wanted.tx_ctx_cnt, attributes_.ep_tx_ctx_cnt.total);
  granted_.rx_ctx_cnt =
      receive_contexts_wanted(wanted.rx_ctx_cnt, granted_.tx_ctx_cnt, attributes_.ep_rx_ctx_cnt.total);
  grants_.push_back(shared_grant("queue pairs", device.max_qp, node));
  grants_.push_back(shared_grant("completion queues", device.max_cq, node));
  grants_.push_back(shared_grant("memory regions", device.max_mr, node));
  grants_.push_back(context_grant("transmit contexts per endpoint", wanted.tx_ctx_cnt, granted_.tx_ctx_cnt,
                                  attributes_.ep_tx_ctx_cnt.total));
  grants_.push_back(receive_context_grant(wanted.rx_ctx_cnt, granted_.rx_ctx_cnt, attributes_.ep_rx_ctx_cnt.total));
  const std::int64_t per_endpoint = use.queue_pairs_per_context * std::max(granted_.tx_ctx_cnt, granted_.rx_ctx_cnt);
  grants_.push_back(
      {"endpoints", attributes_.ep_cnt.total,
       std::to_string(grants_[0].count) + " queue pairs, " + std::to_string(per_endpoint) + " for each endpoint"});
}

std::string explain(const std::vector<Grant>& grants) {
  std::string text;
  for (const Grant& grant : grants) {
    text += (text.empty() ? "" : "; ") + grant.what + ": " + std::to_string(grant.count) + " (" + grant.why + ")";
  }
  return text;
}

}  // namespace fabric
