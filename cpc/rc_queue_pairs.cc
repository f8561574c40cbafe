// SPDX-License-Identifier: BSD-3-Clause
//
// Reliable-connected queue pairs by libibverbs. InfiniBand Architecture Specification 1.4, section 11.2.5.2, tells
// which attributes each transition takes.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "common/verbs_handle.h"
#include "cpc/progress_thread.h"
#include "cpc/queue_pairs.h"
#include "cpc/random_bits.h"

namespace fabric::cpc {
namespace {

constexpr std::uint8_t kHopLimit = 64;
/// RDMA reads and atomics that a queue pair has under way at its peer, and that it lets its peer have here. We ask for
/// fewer than we grant, so that devices of different size get along without telling each other.
constexpr int kReadsAsked = 4;
constexpr int kReadsGranted = 16;

std::uint8_t clamp_reads(int device_maximum, int ours) noexcept {
  return static_cast<std::uint8_t>(std::clamp(device_maximum, 0, ours));
}

std::string device_name(const PortContext& port) {
  return std::string(ibv_get_device_name(port.device->device)) + " port " + std::to_string(port.port_num);
}

/// Work requests that a queue of the list can have under way.
struct Depths {
  std::uint32_t send = 0;
  std::uint32_t receive = 0;
};

Depths depths_of(const QueueSpec& queue) noexcept {
  return {queue.send_depth() + kMarkerEntries, queue.receive_depth()};
}

/// A queue pair and its room for completions, which outlives it.
struct RoomAndQueuePair {
  CompletionQueueRoom room;
  QueuePair queue_pair;
};

/// All functions are for the progress thread.
class RcQueuePairs final : public QueuePairs {
 public:
  explicit RcQueuePairs(const PortContext& port) : port_(port) {}

  [[nodiscard]] Status make();

  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override;
  [[nodiscard]] Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) override;
  void flush() noexcept override;

 private:
  [[nodiscard]] Result<RoomAndQueuePair> make_one(std::size_t index) const;
  [[nodiscard]] Status check_depths(std::size_t index, const Depths& depths) const;
  [[nodiscard]] Status to_init(ibv_qp* queue_pair) const;
  [[nodiscard]] Status to_ready_to_receive(ibv_qp* queue_pair, const PortAddress& peer, const QueuePairEnd& end) const;
  [[nodiscard]] Status to_ready_to_send(ibv_qp* queue_pair, QueueKind kind, const QueuePairEnd& own_end) const;
  [[nodiscard]] ibv_ah_attr path_to(const PortAddress& peer) const;

  const PortContext& port_;
  ibv_device_attr limits_{};
  std::vector<RoomAndQueuePair> queue_pairs_;
  std::vector<QueuePairEnd> ends_;
};

Status RcQueuePairs::make() {
  if (const int error_number = ibv_query_device(port_.device, &limits_); error_number != 0) {
    return verbs_failure("querying " + device_name(port_), error_number);
  }
  for (std::size_t i = 0; i < port_.queues->count(); ++i) {
    Result<RoomAndQueuePair> made = make_one(i);
    Status initialised = made ? to_init(made->queue_pair.get()) : Status(tl::unexpected(made.error()));
    if (!initialised) {
      return failure("queue " + std::to_string(i) + " on " + device_name(port_), initialised.error());
    }
    ends_.push_back({made->queue_pair->qp_num & 0xffffff, random_bits() & 0xffffff});
    queue_pairs_.push_back(std::move(*made));
  }
  return {};
}

Status RcQueuePairs::check_depths(std::size_t index, const Depths& depths) const {
  const auto most = static_cast<std::uint32_t>(std::max(limits_.max_qp_wr, 0));
  if (depths.send <= most && depths.receive <= most) {
    return {};
  }
  const bool per_peer = (*port_.queues)[index].kind == QueueKind::kPerPeer;
  return failure(std::string(per_peer ? "rd_num + rd_rsv is " : "sd_max is ") +
                 std::to_string(std::max(depths.send, depths.receive)) + ", and the device takes at most " +
                 std::to_string(most) + " work requests per queue pair: lower it in btl_fabric_receive_queues");
}

Result<RoomAndQueuePair> RcQueuePairs::make_one(std::size_t index) const {
  const QueueSpec& queue = (*port_.queues)[index];
  if (queue.kind == QueueKind::kXrc) {
    return failure("X queues have no queue pairs of their own");
  }
  const Depths depths = depths_of(queue);
  if (Status fits = check_depths(index, depths); !fits) {
    return tl::unexpected(std::move(fits).error());
  }
  Result<CompletionQueueRoom> room = port_.completion_queues->reserve(depths.send + depths.receive);
  if (!room) {
    return tl::unexpected(std::move(room).error());
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = room->cq();
  attributes.recv_cq = room->cq();
  attributes.srq = queue.kind == QueueKind::kShared ? port_.srqs[index] : nullptr;
  attributes.cap.max_send_wr = depths.send;
  attributes.cap.max_recv_wr = depths.receive;
  attributes.cap.max_send_sge = kSendSges;
  attributes.cap.max_recv_sge = attributes.srq == nullptr ? 1 : 0;
  attributes.cap.max_inline_data = port_.settings.max_inline;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 0;
  QueuePair made(ibv_create_qp(port_.pd, &attributes));
  if (!made) {
    return verbs_failure("creating a queue pair with " + std::to_string(depths.send) + " sends, " +
                             std::to_string(depths.receive) + " receives and " +
                             std::to_string(port_.settings.max_inline) + " inline bytes",
                         errno);
  }
  return RoomAndQueuePair{std::move(*room), std::move(made)};
}

Status RcQueuePairs::to_init(ibv_qp* queue_pair) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = port_.settings.pkey_index;
  attributes.port_num = port_.port_num;
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (limits_.atomic_cap != IBV_ATOMIC_NONE) {
    attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  }
  const int error_number =
      ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error_number == 0 ? Status() : verbs_failure("moving a queue pair to INIT", error_number);
}

std::vector<ibv_qp*> RcQueuePairs::handles() const {
  std::vector<ibv_qp*> handles;
  handles.reserve(queue_pairs_.size());
  for (const RoomAndQueuePair& one : queue_pairs_) {
    handles.push_back(one.queue_pair.get());
  }
  return handles;
}

Status RcQueuePairs::connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  assert_on_progress_thread();
  if (peer.link != port_.address.link) {
    return failure(device_name(port_) + " and the peer's port are on different kinds of link");
  }
  if (ends.size() != queue_pairs_.size()) {
    return failure(std::to_string(ends.size()) + " ends for " + std::to_string(queue_pairs_.size()) + " queue pairs");
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ibv_qp* const queue_pair = queue_pairs_[i].queue_pair.get();
    Status moved = to_ready_to_receive(queue_pair, peer, ends[i]);
    if (moved) {
      moved = to_ready_to_send(queue_pair, (*port_.queues)[i].kind, ends_[i]);
    }
    if (!moved) {
      return failure(
          "queue " + std::to_string(i) + " on " + device_name(port_) + " to queue pair " + std::to_string(ends[i].qpn),
          moved.error());
    }
  }
  return {};
}

/// RoCE routes by GID always, InfiniBand only between subnets.
ibv_ah_attr RcQueuePairs::path_to(const PortAddress& peer) const {
  ibv_ah_attr path{};
  path.port_num = port_.port_num;
  path.sl = port_.settings.service_level;
  if (peer.link == Link::kInfiniBand) {
    path.dlid = peer.lid;
  }
  if (peer.link == Link::kRoce || peer.subnet != port_.address.subnet) {
    path.is_global = 1;
    std::copy(peer.gid.raw.begin(), peer.gid.raw.end(), path.grh.dgid.raw);
    path.grh.sgid_index = port_.gid_index;
    path.grh.hop_limit = kHopLimit;
    path.grh.traffic_class = port_.settings.traffic_class;
  }
  return path;
}

Status RcQueuePairs::to_ready_to_receive(ibv_qp* queue_pair, const PortAddress& peer, const QueuePairEnd& end) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer.mtu, port_.address.mtu));
  attributes.dest_qp_num = end.qpn;
  attributes.rq_psn = end.psn;
  attributes.max_dest_rd_atomic = clamp_reads(limits_.max_qp_rd_atom, kReadsGranted);
  attributes.min_rnr_timer = port_.settings.min_rnr_timer;
  attributes.ah_attr = path_to(peer);
  const int error_number = ibv_modify_qp(queue_pair, &attributes,
                                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return error_number == 0 ? Status() : verbs_failure("moving a queue pair to RTR", error_number);
}

Status RcQueuePairs::to_ready_to_send(ibv_qp* queue_pair, QueueKind kind, const QueuePairEnd& own_end) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = port_.settings.timeout;
  attributes.retry_cnt = port_.settings.retry_count;
  // Credits keep P queues from ever meeting "receiver not ready": there it is an error to be seen at once.
  attributes.rnr_retry = kind == QueueKind::kPerPeer ? std::uint8_t{0} : port_.settings.rnr_retry;
  attributes.sq_psn = own_end.psn;
  attributes.max_rd_atomic = clamp_reads(limits_.max_qp_init_rd_atom, kReadsAsked);
  const int error_number = ibv_modify_qp(
      queue_pair, &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error_number == 0 ? Status() : verbs_failure("moving a queue pair to RTS", error_number);
}

void RcQueuePairs::flush() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  for (const RoomAndQueuePair& one : queue_pairs_) {
    // A device that refuses even this has lost the queue pair; destroying it is all that is left.
    (void)ibv_modify_qp(one.queue_pair.get(), &attributes, IBV_QP_STATE);
  }
}

}  // namespace

Result<std::unique_ptr<QueuePairs>> make_rc_queue_pairs(const PortContext& port) {
  assert_on_progress_thread();
  if (port.address.link == Link::kIwarp) {
    return failure(device_name(port) +
                   " is an iWARP port, whose queue pairs only the rdmacm connection method can connect");
  }
  auto made = std::make_unique<RcQueuePairs>(port);
  if (Status ready = made->make(); !ready) {
    return tl::unexpected(std::move(ready).error());
  }
  return made;
}

}  // namespace fabric::cpc
