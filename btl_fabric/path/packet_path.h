// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path of one port, in one transmit context: what its links share, and where completions are taken.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "btl_fabric/base/atomic_targets.h"
#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/base/upper_layer.h"
#include "btl_fabric/path/early_packets.h"
#include "btl_fabric/path/ring_memory.h"
#include "btl_fabric/path/shared_queue.h"
#include "btl_fabric/path/shared_send_queue.h"
#include "common/accounting/completion_queue_set.h"
#include "common/accounting/qpn_table.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/xrc_domain.h"
#include "cpc/core/cpc.h"

namespace fabric {

class Link;
class PacketWatch;
class PathEvents;

/// Whether peers may write small messages into rings of ours, which are polled.
enum class EagerRdma : std::uint8_t {
  kOff,
  kWhereInOrder,  ///< if verbs says of a queue pair that a message's bytes are stored in order (ibv_query_qp_data_in_order(3))
  kOn,
};

/// How a port's packet path runs. Never changes.
struct PathSettings {
  const ReceiveQueues* queues = nullptr;  ///< outlives the path
  std::uint32_t max_inline = 0;           ///< bytes
  DeviceCosts costs;
  std::uint32_t rdma_depth = 0;  ///< reads, writes and atomics under way on a queue pair
  RdmaLimits rdma_limits;
  bool heals = false;               ///< links that break may be made anew: keeps what is not known to have arrived
  int poll_batch = 1;               ///< completions taken at once, at most kMaxPollBatch
  std::uint32_t coalesce_size = 0;  ///< bytes of a packet of several messages; 0: each goes alone
  std::optional<std::uint32_t> coalesce_first;  ///< of EarlyPackets
  EagerRdma eager_rdma = EagerRdma::kOff;       ///< not without PathQueues::rings
  std::uint32_t eager_rdma_threshold = 16;      ///< small messages of a peer before it is given a ring
  /// The upper layer's functions for messages, by tag.
  const mca_btl_active_message_callback_t* receivers = nullptr;
};

/// Of the queue pairs of its links, as far as their queues go by it.
[[nodiscard]] inline cpc::QueuePairSettings queue_pair_settings(const PathSettings& path) noexcept {
  cpc::QueuePairSettings settings;
  settings.max_inline = path.max_inline;
  settings.costs = path.costs;
  settings.rdma_depth = path.rdma_depth;
  return settings;
}

/// What it works with and owns: one of each kind for every receive queue.
struct PathQueues {
  // In the order of creation: receive buffers outlive the queues that they are posted on.
  std::vector<std::unique_ptr<FragmentPool>> send_pools;
  std::vector<std::unique_ptr<FragmentPool>> receive_pools;
  std::unique_ptr<FragmentPool> own_pool;  ///< of make_own_pool()
  std::unique_ptr<RingMemory> rings;       ///< null: no eager RDMA
  std::unique_ptr<CompletionQueueSet> completion_queues;
  std::optional<XrcDomain> xrc_domain;                      ///< of X queues
  std::vector<std::unique_ptr<SharedQueue>> shared_queues;  ///< null for P queues
};

/// Buffers for what the component itself has to say, without a limit: messages may hold all of theirs while they wait for
/// just that, a credit or the answer to who wants to give a link up. An upper layer's control messages take them too, when
/// others are out. They are made when they are used, unless credits need them. The error says that no memory can be
/// registered.
[[nodiscard]] Result<std::unique_ptr<FragmentPool>> make_own_pool(const BufferSource& source,
                                                                  const ReceiveQueues& queues,
                                                                  std::uint32_t max_inline);

/// One of those, for a message on a queue; of the upper layer's, for at most kMostControl bytes. Null: there is no memory. Goes back by
/// put_back().
[[nodiscard]] inline Fragment* get_unlimited(PathQueues& queues, std::size_t queue) noexcept {
  Fragment* const own = queues.own_pool->get();
  if (own != nullptr) {
    own->queue = static_cast<std::uint8_t>(queue);
  }
  return own;
}
inline constexpr std::size_t kMostControl = 192;

/// What it uses of others, who outlive it.
struct PathParts {
  DeviceRdma& rdma;              ///< what the RDMA operations of the device share, in this context
  const AtomicTargets& targets;  ///< of atomics that come as messages
  Counters& counters;
  PathEvents& events;
  PacketWatch* watch = nullptr;  ///< null: no message is complete before its packet is
};

/// Everything here belongs to whoever holds the lock of the context.
class PacketPath {
 public:
  static constexpr int kMaxPollBatch = 256;  ///< the most that the cq_poll_batch parameter allows

  /// Its links go before it.
  PacketPath(const PathSettings& settings, PathQueues queues, const PathParts& parts);
  PacketPath(const PacketPath&) = delete;
  PacketPath& operator=(const PacketPath&) = delete;

  /// Takes what has completed. Gives the number of completions.
  int progress() noexcept;
  /// At the very end: takes what has completed, for goodbyes to come and go. The upper layer, whose callbacks would be due for
  /// the rest, is gone.
  void poll_goodbyes() noexcept;
  /// progress() runs, and has called whoever asks.
  [[nodiscard]] bool is_in_progress() const noexcept { return depth_ > 0; }

  [[nodiscard]] const PathSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const ReceiveQueues& receive_queues() const noexcept { return *settings_.queues; }
  [[nodiscard]] PathQueues& queues() noexcept { return queues_; }
  [[nodiscard]] Counters& counters() const noexcept { return parts_.counters; }
  [[nodiscard]] DeviceRdma& rdma() const noexcept { return parts_.rdma; }
  [[nodiscard]] PathEvents& events() const noexcept { return parts_.events; }
  [[nodiscard]] PacketWatch* watch() const noexcept { return parts_.watch; }

  /// The queue for messages of `size` bytes; receive_queues().count() if none takes them.
  [[nodiscard]] std::size_t queue_for(std::size_t size) const noexcept {
    return size <= smallest_size_ ? smallest_queue_ : settings_.queues->smallest_fitting(size);
  }
  /// A send buffer of a queue, or null. Goes back by put_back().
  [[nodiscard]] Fragment* get_send(std::size_t queue) noexcept {
    Fragment* const fragment = queues_.send_pools[queue]->get();
    if (fragment == nullptr) [[unlikely]] {
      short_queue_.store(queue, std::memory_order_relaxed);
      short_of_buffers_.store(kShortFor, std::memory_order_relaxed);
    }
    return fragment;
  }

  /// An atomic that has come as a message.
  [[nodiscard]] AtomicReply execute(const AtomicMessage& message) noexcept {
    ++counters().atomics_executed;
    return parts_.targets.execute(message);
  }

  /// Posts the first receives of all shared queues, if that has not been done.
  [[nodiscard]] Status start_shared_queues();
  /// A device says that a shared receive queue runs low. Nothing happens if it is none of ours.
  void srq_limit_reached(const void* srq) noexcept;
  /// True for one of our completion queues or shared receive queues.
  [[nodiscard]] bool owns(const void* object) const noexcept;
  /// The send queue of X queues to the port of a node, for all processes there.
  [[nodiscard]] SharedSendQueue& sender(const cpc::XrcPath& path);
  /// The queue pair of that send queue is destroyed, and its last completions are taken. Nothing happens if it is none of
  /// ours.
  void sender_is_gone(std::uint64_t sender) noexcept;
  [[nodiscard]] bool has_senders_gone() const noexcept { return senders_gone_ > 0; }
  /// Lets those go that no link uses. Not while progress() runs.
  void reap_senders() noexcept;

 private:
  friend class Link;
  friend class LinkRdma;
  friend class LinkRest;
  friend class LinkHealing;
  friend class LinkOneWay;
  friend class LostDevice;
  friend class SharedSendQueue;

  // For links
  /// A buffer for one of the component's own short messages on a queue; null: there is no memory. Goes back by put_back().
  [[nodiscard]] Fragment* get_own(std::size_t queue) noexcept {
    Fragment* const own = get_unlimited(queues_, queue);
    return own != nullptr ? own : get_send(queue);
  }
  [[nodiscard]] FragmentPool& receive_pool(std::size_t queue) noexcept { return *queues_.receive_pools[queue]; }
  [[nodiscard]] const SharedQueue& shared_queue(std::size_t queue) const noexcept {
    return *queues_.shared_queues[queue];
  }
  [[nodiscard]] Status start_shared_queue(std::size_t queue) { return queues_.shared_queues[queue]->start(); }
  /// The send queue shares its completion queue with others from now on.
  void add_borrower(SendQueue& sends);
  /// All its completions are in.
  void remove_borrower(SendQueue& sends) noexcept;
  /// Lends a send queue more room in its completion queue. False if there is none now; there may be for its own sends.
  [[nodiscard]] bool lend(SendQueue& sends) noexcept;
  /// What comes through the queue pair is for `queue`; with X queues for it and its neighbours.
  void add_queue_pair(std::uint32_t qpn, LinkQueue& queue) { queue_pairs_.insert(qpn, &queue); }
  void remove_queue_pair(std::uint32_t qpn) noexcept { queue_pairs_.erase(qpn); }
  [[nodiscard]] bool knows_queue_pair(std::uint32_t qpn) const noexcept { return queue_pairs_.find(qpn) != nullptr; }
  /// The link lacks something that has nothing to do with its own completions: every call of progress() tries again.
  void retry_later(Link& link) noexcept;
  /// The link has an open packet, which leaves at the end of the next call of progress().
  void post_later(Link& link) noexcept;
  /// The link goes.
  void forget(Link& link) noexcept;
  /// How often progress() was called.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// Messages of `size` bytes may go in packets with others.
  [[nodiscard]] bool coalesces(std::size_t size) const noexcept { return size <= largest_coalesced_; }
  /// What the smallest messages go over, and its bytes.
  [[nodiscard]] std::size_t smallest_queue() const noexcept { return smallest_queue_; }
  [[nodiscard]] std::uint32_t smallest_size() const noexcept { return smallest_size_; }
  // Rings (eager_rdma.cc)
  [[nodiscard]] RingMemory& rings() noexcept { return *queues_.rings; }
  /// `queue_pair`: one that peers would write through.
  [[nodiscard]] bool may_have_rings(ibv_qp* queue_pair) noexcept;
  /// The link's ring is polled from now on.
  void add_ring(Link& link) noexcept;
  void remove_ring(const Link& link) noexcept;
  void take_back_a_ring(std::uint64_t took) noexcept;
  /// What packets of several messages go over, and their bytes.
  [[nodiscard]] std::size_t coalescing_queue() const noexcept { return coalescing_queue_; }
  [[nodiscard]] std::size_t packet_size() const noexcept { return packet_size_; }
  [[nodiscard]] EarlyPackets& early_packets() noexcept { return early_packets_; }
  /// What reads, writes and atomics go over.

  int progress_everything() noexcept;
  int poll(ibv_cq* queue) noexcept;
  /// Somebody has got none, shortly before: messages wait in the upper layer, which sends the next of them whenever it is told that
  /// one has gone. Otherwise it tries them all after each call of progress(), and a flood takes time that grows with its square.
  [[nodiscard]] bool is_short_of_buffers() const noexcept {
    return short_of_buffers_.load(std::memory_order_relaxed) != 0;
  }
  int poll_all() noexcept;
  int poll_for_buffers() noexcept;
  int take_batch() noexcept;
  int poll_rings() noexcept;
  void do_the_rest() noexcept;
  void retry() noexcept;
  void post_packets() noexcept;
  void take_off_list(Link& link) noexcept;
  [[nodiscard]] LinkQueue* queue_of(std::uint32_t qpn, const Fragment& fragment) const noexcept;
  void receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept;
  void shared_receive_completed(const ibv_wc& completion, Fragment* fragment) noexcept;
  void deliver(LinkQueue& queue, Fragment* fragment, std::uint32_t length) noexcept;
  void deliver_message(LinkQueue& queue, Fragment& fragment, std::byte* message, std::size_t size,
                       mca_btl_base_tag_t tag) noexcept;
  void deliver_from_ring(LinkQueue& queue, std::span<std::byte> message, mca_btl_base_tag_t tag) noexcept;
  void deliver_to_link(LinkQueue& queue, PacketKind kind, std::span<const std::byte> packet) noexcept;
  void deliver_several(LinkQueue& queue, Fragment& fragment, std::uint32_t length) noexcept;
  [[nodiscard]] bool take_atomic(LinkQueue& queue, std::span<const std::byte> body) noexcept;
  [[nodiscard]] bool take_atomic_reply(LinkQueue& queue, std::span<const std::byte> body) noexcept;
  void bad_packet(LinkQueue& queue, std::span<const std::byte> packet) noexcept;
  void send_completed(const ibv_wc& completion) noexcept;
  void room_freed(LinkQueue& queue) noexcept;
  void last_receive_completed(const ibv_wc& completion) noexcept;
  void last_send_completed(const ibv_wc& completion) noexcept;
  void completion_failed(ibv_wc completion) noexcept;
  [[nodiscard]] LinkQueue* receive_failed(const ibv_wc& completion) noexcept;

  const PathSettings settings_;
  const std::size_t smallest_queue_;  ///< the one for the smallest messages
  const std::uint32_t smallest_size_;
  const std::size_t coalescing_queue_;
  const std::size_t packet_size_;
  const std::size_t largest_coalesced_;  ///< bytes
  PathQueues queues_;
  const PathParts parts_;
  EarlyPackets early_packets_;
  std::vector<SendQueue*> borrowers_;
  std::size_t next_to_give_back_ = 0;  ///< of those
  std::uint64_t epoch_ = 0;
  static constexpr unsigned kShortFor = 2;  ///< calls of progress(): the next one, and one in which nobody misses any
  std::atomic<unsigned> short_of_buffers_ = 0;  ///< that many calls more. Set without a lock
  std::atomic<std::size_t> short_queue_ = 0;    ///< whose there were none of
  unsigned depth_ = 0;                          ///< of calls, within each other, that call whoever asks
  bool is_more_to_do_ = false;                  ///< for one of the next two, or both
  bool shared_queues_short_ = false;            ///< of buffers
  EagerRdma eager_rdma_;
  bool is_lost_ = false;       ///< its device is gone (lost_device.h)
  std::vector<Link*> ringed_;  ///< whose rings are polled; has room for all
  Link* first_to_retry_ = nullptr;
  Link* first_to_post_ = nullptr;  ///< these have open packets
  Link* last_to_retry_ = nullptr;
  // What has been polled and not handled yet
  unsigned batch_next_ = 0;
  unsigned batch_end_ = 0;
  std::array<ibv_wc, kMaxPollBatch> batch_;
  QpnTable<LinkQueue> queue_pairs_;  ///< by the number that receive completions have; of X queues the first
  std::unordered_map<std::uint64_t, std::unique_ptr<SharedSendQueue>> senders_;  ///< by XrcPath::sender
  std::size_t senders_gone_ = 0;                                                 ///< of those
};

/// Hands the upper layer a packet's body, of one message or (`several`) of more, that has come by another port than the one whose
/// handles these are. False if it is no such body.
[[nodiscard]] bool deliver_for(PacketPath& path, const UpperHandles& upper, std::span<std::byte> body,
                               mca_btl_base_tag_t tag, bool several) noexcept;

}  // namespace fabric
