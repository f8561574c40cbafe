// SPDX-License-Identifier: BSD-3-Clause
//
// What a device offers to the processes of a node, and how they share it. Pure functions of facts about the device and
// the node.
//
// An endpoint (a peer, through a port) uses transmit contexts and receive contexts; here a context is a queue pair, or
// several, one per receive queue. The domain attributes say how many of everything one process can have: in total, and
// up to which number the device serves them without getting slower.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fabric {

/// What verbs says of a device.
struct DeviceFacts {
  std::int64_t max_qp = 0;
  std::int64_t max_cq = 0;
  std::int64_t max_cqe = 0;
  std::int64_t max_srq = 0;
  std::int64_t max_mr = 0;
  std::int64_t max_qp_wr = 0;
};

[[nodiscard]] DeviceFacts facts_of(const ibv_device_attr& attributes) noexcept;

/// Who shares the device.
struct NodeShare {
  std::int64_t processes = 1;  ///< of the job on this node
  std::int64_t cores = 1;      ///< that this process may run on
};

/// What each endpoint wants; -1 asks for the most there is. A verbs queue pair receives where it sends, so that an endpoint
/// has at least as many receive contexts as transmit contexts.
struct EndpointAttributes {
  std::int64_t tx_ctx_cnt = 1;
  std::int64_t rx_ctx_cnt = 0;  ///< 0: as many as transmit contexts
  bool operator==(const EndpointAttributes&) const = default;
};

struct ContextCount {
  std::int64_t total = 0;
  std::int64_t optimal = 0;  ///< at most total
  bool operator==(const ContextCount&) const = default;
};

/// What one process can have. Counts are for endpoints that want what was asked for.
struct DomainAttributes {
  ContextCount ep_cnt;         ///< endpoints
  ContextCount tx_ctx_cnt;     ///< transmit contexts of all endpoints together
  ContextCount rx_ctx_cnt;     ///< receive contexts of all endpoints together
  ContextCount ep_tx_ctx_cnt;  ///< transmit contexts of one endpoint
  ContextCount ep_rx_ctx_cnt;  ///< receive contexts of one endpoint
  ContextCount cq_cnt;         ///< completion queues
  ContextCount cq_ctx_cnt;     ///< contexts that complete into one queue without overrunning it
};

/// How a process uses its queue pairs.
struct QueuePairUse {
  std::int64_t queue_pairs_per_context = 1;  ///< one per receive queue
  std::int64_t entries_per_context = 1;      ///< completions that a context can have outstanding
  std::int64_t entries_per_cq = 1;           ///< completions that a queue holds, beyond those of shared receives
};

/// The most contexts of one endpoint: more queue pairs to one peer than this only take turns on the same wire.
inline constexpr std::int64_t kMostContextsPerEndpoint = 64;

[[nodiscard]] DomainAttributes domain_attributes(const DeviceFacts& device, const NodeShare& node,
                                                 const QueuePairUse& use, const EndpointAttributes& wanted) noexcept;

/// What a process was given of something, and why.
struct Grant {
  std::string what;  ///< "queue pairs"
  std::int64_t count = 0;
  std::string why;  ///< "262144 of the device, shared by 4 processes of this node"
};

/// As text: "queue pairs: 65536 (262144 of the device, shared by 4 processes of this node); ...".
[[nodiscard]] std::string explain(const std::vector<Grant>& grants);

/// Divides a device among the processes of a node. Every process computes the same from the same facts, so none has to
/// ask another.
class ResourceManager {
 public:
  ResourceManager(const DeviceFacts& device, const NodeShare& node, const QueuePairUse& use,
                  const EndpointAttributes& wanted);

  [[nodiscard]] const DomainAttributes& attributes() const noexcept { return attributes_; }
  /// Contexts of every endpoint: what was wanted, or what there is.
  [[nodiscard]] const EndpointAttributes& granted() const noexcept { return granted_; }
  [[nodiscard]] std::int64_t queue_pairs() const noexcept { return grants_[0].count; }
  [[nodiscard]] std::int64_t completion_queues() const noexcept { return grants_[1].count; }
  /// Memory regions, for whatever is registered; 0: not known. RegionBudget sees to it.
  [[nodiscard]] const Grant& memory_region_grant() const noexcept { return grants_[2]; }
  /// Everything, with the reasons.
  [[nodiscard]] const std::vector<Grant>& grants() const noexcept { return grants_; }
  /// The same as text.
  [[nodiscard]] std::string explain() const { return fabric::explain(grants_); }

 private:
  DomainAttributes attributes_;
  EndpointAttributes granted_;
  std::vector<Grant> grants_;
};

}  // namespace fabric
