// SPDX-License-Identifier: BSD-3-Clause
//
// The queue pairs of one connection, one per queue of the receive_queues list.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/accounting/completion_queue_set.h"
#include "common/accounting/queue_space.h"
#include "common/accounting/queue_subset.h"
#include "common/accounting/receive_queues.h"
#include "common/base/result.h"
#include "common/ports/gid_choice.h"
#include "common/ports/port_address.h"
#include "cpc/queue_pairs/handshake_slab.h"
#include "cpc/queue_pairs/path_table.h"
#include "cpc/queue_pairs/queue_pair_budget.h"

namespace fabric::cpc {

/// Transport settings of queue pairs. InfiniBand Architecture Specification 1.4, section 11.2.5.2 (Modify QP).
struct QueuePairSettings {
  std::uint8_t timeout = 18;        ///< local ACK timeout: 4.096 us * 2^timeout
  std::uint8_t retry_count = 7;     ///< transport retries
  std::uint8_t rnr_retry = 7;       ///< "receiver not ready" retries of S queues; 7 = for ever. P queues use 0
  std::uint8_t min_rnr_timer = 12;  ///< code of the pause that a sender makes after "receiver not ready"
  std::uint8_t service_level = 0;
  std::uint16_t pkey_index = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t max_inline = 0;  ///< bytes
  DeviceCosts costs;             ///< of operations on the device
  std::uint32_t rdma_depth = 0;  ///< reads, writes and atomics under way to a peer, on rdma_queue()
};

/// What a local port lends to its connections. Made by the main thread before any connection, then only read; outlives
/// them all.
struct PortContext {
  std::uint16_t index = 0;  ///< place in this process's list of ports
  ibv_context* device = nullptr;
  ibv_pd* pd = nullptr;
  ibv_device_attr limits{};  ///< of the device
  std::uint8_t port_num = 1;
  std::uint8_t gid_index = 0;
  bool needs_grh = false;       ///< packets go by GID on InfiniBand too: IBV_QPF_GRH_REQUIRED, ibv_query_port(3)
  std::uint16_t pkey = 0xffff;  ///< the partition key at settings.pkey_index
  PortAddress address;
  std::uint8_t path_bits = 0;           ///< InfiniBand: `address.lid` less the port's first LID
  std::uint32_t flow_label = 0;         ///< RoCE: of the packets; 0: the device's choice
  std::optional<InterfaceAddress> ip;   ///< of the port's network interface, for RDMA-CM
  HandshakeSlab* handshakes = nullptr;  ///< of the device; null: no CPC that exchanges CTS
  const ReceiveQueues* queues = nullptr;
  /// What connections may have of them: X queues first, and of others no two of the same number of queues, by which a
  /// request tells them apart.
  std::vector<QueueSubset> subsets;
  CompletionQueueSet* completion_queues = nullptr;
  std::vector<ibv_srq*> srqs;  ///< one per queue; null for P queues
  ibv_xrcd* xrcd = nullptr;    ///< X queues: the domain that the processes of the node share on this device
  std::uint64_t xrc_domain =
      0;  ///< names it: equal in processes that have it open, different otherwise; travels in xoob's offer
  QueuePairSettings settings;
  QueuePairBudget* budget = nullptr;  ///< of RC queue pairs, the progress thread's; null: there is no limit
  /// What the subnet administrator says of paths from the port, the progress thread's; null: it is not asked.
  PathTable* path_table = nullptr;
};

/// The subset of so many queues that are not X queues; null if there is none.
[[nodiscard]] inline const QueueSubset* find_subset(const PortContext& port, std::size_t count) noexcept {
  const auto found = std::find_if(port.subsets.begin(), port.subsets.end(), [count](const QueueSubset& one) {
    return one.count() == count && !one.queues().has_xrc();
  });
  return found == port.subsets.end() ? nullptr : &*found;
}

/// One end of a queue pair, as told to the peer.
struct QueuePairEnd {
  std::uint32_t qpn = 0;  ///< 24 bits
  std::uint32_t psn = 0;  ///< first packet sequence number, 24 bits
  bool operator==(const QueuePairEnd&) const = default;
};

/// Send queue entries of every queue pair beyond QueueSpec::send_depth(): for the marker that is posted when the
/// connection is taken down, whose completion comes after all others.
inline constexpr std::uint32_t kMarkerEntries = 1;

/// Entries beyond that, each way, of the queue pairs that CTS goes over.
inline constexpr std::uint32_t kHandshakeEntries = 1;

/// Sends of a queue pair that there is always room for in its completion queue; for more it takes turns with others
/// (SendCompletions). A few more where entries of the send queue are small.
inline constexpr std::uint32_t kOwnSends = 8;

/// Pieces of memory that a send can be put together from: our header, and the user's data where they are.
inline constexpr std::uint32_t kSendSges = 2;

/// RDMA reads and atomics that a queue pair has under way at its peer, and that it lets its peer have here. We ask for
/// fewer than we grant, so that devices of different size get along without telling each other.
inline constexpr int kReadsAsked = 4;
inline constexpr int kReadsGranted = 16;

/// The queue whose queue pair carries reads, writes and atomics too: the one with the largest buffers. What waits behind
/// a long read there is a large message anyway, and small messages never do; and a queue pair of its own would cost
/// every peer one more.
[[nodiscard]] inline std::size_t rdma_queue(const ReceiveQueues& queues) noexcept {
  return queues.smallest_fitting(queues.largest());
}

/// The send queue of queue `index` without the entries that are kept for the marker and the handshake: room for every
/// message that may be under way, and for RDMA where it goes.
[[nodiscard]] inline QueueSpace send_space(const ReceiveQueues& queues, std::size_t index, const DeviceCosts& costs,
                                           std::uint32_t max_inline, std::uint32_t rdma_depth) noexcept {
  const std::uint64_t rdma = index == rdma_queue(queues) ? rdma_depth : 0;
  return QueueSpace::for_operations(queues[index].send_depth() + rdma, costs, kSendSges, max_inline);
}

/// The send queue of an XRC sender, which has no marker: it carries the messages of all X queues, and RDMA.
[[nodiscard]] inline QueueSpace sender_space(const ReceiveQueues& queues, const DeviceCosts& costs,
                                             std::uint32_t max_inline, std::uint32_t rdma_depth) noexcept {
  std::uint64_t operations = rdma_depth;
  for (const QueueSpec& queue : queues.queues()) {
    operations += queue.kind == QueueKind::kXrc ? queue.send_depth() : 0;
  }
  return QueueSpace::for_operations(operations, costs, kSendSges, max_inline);
}

/// Asks a communication manager for the attributes of queue pair `queue` in the state attributes.qp_state:
/// rdma_init_qp_attr().
using TransitionAttributes = std::function<Status(std::size_t queue, ibv_qp_attr& attributes)>;

/// What the two sides of a connection of X queues tell each other beside their ends.
struct XrcNumbers {
  std::uint32_t target_qpn = 0;     ///< sending side: the target that its queue pair is connected to; 0: none yet
  std::vector<std::uint32_t> srqs;  ///< receiving side: its XRC SRQs, one per queue
  bool operator==(const XrcNumbers&) const = default;
};

/// The queue pairs of a connection. Made, brought up and destroyed on the progress thread; the main thread posts to the
/// handles between PostReceives and its Destroy command. Destroying the object destroys the queue pairs.
class QueuePairs {
 public:
  virtual ~QueuePairs() = default;
  /// Our ends, one per queue of the connection.
  [[nodiscard]] virtual const std::vector<QueuePairEnd>& ends() const noexcept = 0;
  /// The verbs handles, one per queue of the connection.
  [[nodiscard]] virtual std::vector<ibv_qp*> handles() const = 0;
  /// Connects each to the peer's end: INIT -> RTR -> RTS. Called once.
  [[nodiscard]] virtual Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) = 0;
  /// The same, where a communication manager knows the peer's ends. On iWARP it brings the queue pairs up by itself.
  [[nodiscard]] virtual Status connect_by(const TransitionAttributes& /*attributes*/) {
    return failure("these queue pairs know no communication manager");
  }
  /// Takes a handshake slot, and posts its receive on the queues that CTS goes over if they are P queues. Called once, in
  /// INIT.
  [[nodiscard]] virtual Status post_handshake() { return {}; }
  [[nodiscard]] virtual HandshakeSlot handshake() const noexcept { return {}; }
  /// Moves all to the error state: everything posted comes back as flushed completions. What others share stays as it is.
  virtual void flush() noexcept = 0;
  /// X queues: what peers have to be told beside the ends.
  [[nodiscard]] virtual XrcNumbers xrc_numbers() const { return {}; }
  /// A device has moved them to the error state, or lost them.
  [[nodiscard]] virtual bool are_broken() const noexcept { return false; }
};

/// Makes the queue pairs of a connection of `port`, in state INIT, for `queues`, one of PortContext::subsets. A parameter of the
/// ConnectionManager, so that the state machine can be exercised without a device.
using QueuePairMaker =
    std::function<Result<std::unique_ptr<QueuePairs>>(const PortContext& port, const QueueSubset& queues)>;

/// The real one: RC queue pairs by libibverbs.
[[nodiscard]] Result<std::unique_ptr<QueuePairs>> make_rc_queue_pairs(const PortContext& port,
                                                                      const QueueSubset& queues);

/// Makes the two kinds of queue pairs that X queues take. A QueuePairs object of theirs has one end.
struct XrcMaker {
  /// A send queue pair, in INIT. If it cannot be connected, it is in INIT again.
  std::function<Result<std::unique_ptr<QueuePairs>>(const PortContext& port)> sender;
  /// The receiving end for what the queue pair `sender` sends: a new one, in INIT; or, if `target_qpn` is not 0, another
  /// handle for that one, which is connected. The error then: it is gone.
  std::function<Result<std::unique_ptr<QueuePairs>>(const PortContext& port, const QueuePairEnd& sender,
                                                    std::uint32_t target_qpn)>
      target;
};

/// The real ones: XRC queue pairs by libibverbs, in PortContext::xrcd.
[[nodiscard]] XrcMaker make_xrc_queue_pairs();

}  // namespace fabric::cpc
