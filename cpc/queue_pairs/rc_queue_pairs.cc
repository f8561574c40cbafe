// SPDX-License-Identifier: BSD-3-Clause
//
// Reliable-connected queue pairs by libibverbs. InfiniBand Architecture Specification 1.4, section 11.2.5.2, tells
// which attributes each transition takes.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "common/base/verbs_handle.h"
#include "common/rdma/access_flags.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/queue_fit.h"
#include "cpc/queue_pairs/queue_pair_path.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "cpc/queue_pairs/random_bits.h"

namespace fabric::cpc {
namespace {

constexpr int kToReadyToReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kToReadyToSend =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// As verbs_failure(). That of a device which is gone is known to all who use it.
tl::unexpected<Error> failed_on(const PortContext& port, const std::string& what, int error_number) {
  if (error_number == EIO && port.completion_queues != nullptr) {
    port.completion_queues->lose_device();
  }
  return verbs_failure(what, error_number);
}

/// CTS goes over the first queue; on iWARP over each, since each queue pair is a TCP connection with an active side that
/// must send first.
bool takes_cts(const PortContext& port, std::size_t index) noexcept {
  return index == 0 || port.address.link == Transport::kIwarp;
}

/// A queue pair and its room for completions, which outlives it.
struct RoomAndQueuePair {
  CompletionQueueRoom room;
  QueuePair queue_pair;
};

/// All functions are for the progress thread.
class RcQueuePairs final : public QueuePairs {
 public:
  RcQueuePairs(const PortContext& port, const QueueSubset& queues) : port_(port), queues_(queues) {
    if (port_.budget != nullptr) {
      port_.budget->take(static_cast<std::int64_t>(queues_.count()));
    }
  }
  ~RcQueuePairs() override;

  [[nodiscard]] Status make();

  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override;
  [[nodiscard]] Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) override;
  [[nodiscard]] Status connect_by(const TransitionAttributes& attributes) override;
  [[nodiscard]] Status post_handshake() override;
  [[nodiscard]] HandshakeSlot handshake() const noexcept override { return handshake_; }
  void flush() noexcept override;

 private:
  [[nodiscard]] Result<RoomAndQueuePair> make_one(std::size_t index) const;
  [[nodiscard]] Status check_depths(std::size_t index, const QueueDepths& depths) const;
  [[nodiscard]] Status to_init(ibv_qp* queue_pair) const;
  [[nodiscard]] Status bring_up(std::size_t index, const TransitionAttributes& attributes) const;
  [[nodiscard]] Status to_ready_to_receive(ibv_qp* queue_pair, const PortAddress& peer, const QueuePairEnd& end) const;
  [[nodiscard]] Status to_ready_to_send(ibv_qp* queue_pair, QueueKind kind, const QueuePairEnd& own_end) const;
  void set_transport_limits(ibv_qp_attr& attributes, QueueKind kind) const noexcept;

  /// Of the queue at a place of the connection.
  [[nodiscard]] const QueueSpec& spec(std::size_t place) const { return queues_.queues()[place]; }

  const PortContext& port_;
  const QueueSubset& queues_;
  std::vector<RoomAndQueuePair> queue_pairs_;
  std::vector<QueuePairEnd> ends_;
  HandshakeSlot handshake_;
};

RcQueuePairs::~RcQueuePairs() {
  queue_pairs_.clear();  // before the bytes that a receive may be posted to are used for something else
  if (port_.budget != nullptr) {
    port_.budget->give_back(static_cast<std::int64_t>(queues_.count()));
  }
  if (handshake_.receive != nullptr) {
    port_.handshakes->give_back(handshake_);
  }
}

Status RcQueuePairs::post_handshake() {
  assert_on_progress_thread();
  Result<HandshakeSlot> slot = port_.handshakes->take();
  if (!slot) {
    return tl::unexpected(std::move(slot).error());
  }
  handshake_ = *slot;
  ibv_sge place{reinterpret_cast<std::uintptr_t>(handshake_.receive), kHandshakeBytes, handshake_.lkey};
  ibv_recv_wr request{};
  request.wr_id = handshake_.serial << kHandshakeTagBits | kHandshakeTag;
  request.sg_list = &place;
  request.num_sge = 1;
  for (std::size_t i = 0; i < queue_pairs_.size() && takes_cts(port_, i); ++i) {
    handshake_.queues = static_cast<std::uint8_t>(i + 1);
    if (spec(i).kind != QueueKind::kPerPeer) {
      continue;  // in a shared queue, a message of another connection could land in it
    }
    ibv_recv_wr* refused = nullptr;
    const int error_number = ibv_post_recv(queue_pairs_[i].queue_pair.get(), &request, &refused);
    if (error_number != 0) {
      return failed_on(port_, "posting the handshake buffer on " + device_name(port_), error_number);
    }
  }
  return {};
}

Status RcQueuePairs::make() {
  for (std::size_t i = 0; i < queues_.count(); ++i) {
    Result<RoomAndQueuePair> made = make_one(i);
    Status initialised = made ? to_init(made->queue_pair.get()) : Status(tl::unexpected(made.error()));
    if (!initialised) {
      return failure("queue " + std::to_string(i) + " on " + device_name(port_), initialised.error());
    }
    ends_.push_back({made->queue_pair->qp_num & 0xffffff, random_bits() & 0xffffff});
    queue_pairs_.push_back(std::move(*made));
  }
  if (port_.budget != nullptr) {
    port_.budget->made();
  }
  return {};
}

Status RcQueuePairs::check_depths(std::size_t index, const QueueDepths& depths) const {
  const auto most = static_cast<std::uint32_t>(std::max(port_.limits.max_qp_wr, 0));
  if (depths.send <= most && depths.receive <= most) {
    return {};
  }
  const bool per_peer = spec(index).kind == QueueKind::kPerPeer;
  return failure(std::string(per_peer ? "rd_num + rd_rsv is " : "sd_max is ") +
                 std::to_string(std::max(depths.send, depths.receive)) + ", and the device takes at most " +
                 std::to_string(most) + " work requests per queue pair: lower it in btl_fabric_receive_queues");
}

Result<RoomAndQueuePair> RcQueuePairs::make_one(std::size_t index) const {
  const QueueSpec& queue = spec(index);
  if (queue.kind == QueueKind::kXrc) {
    return failure("X queues have no queue pairs of their own");
  }
  const QueueDepths depths = queue_depths(queues_.queues(), index, port_.address.link, port_.settings);
  if (Status fits = check_depths(index, depths); !fits) {
    return tl::unexpected(std::move(fits).error());
  }
  Result<CompletionQueueRoom> room = port_.completion_queues->reserve(depths.completions());
  if (!room) {
    Error short_of = std::move(room).error();
    short_of.is_shortage = !port_.completion_queues->is_lost();
    return tl::unexpected(std::move(short_of));
  }
  ibv_qp_init_attr attributes{};
  attributes.send_cq = room->cq();
  attributes.recv_cq = room->cq();
  attributes.srq = queue.kind == QueueKind::kShared ? port_.srqs[queues_.index(index)] : nullptr;
  attributes.cap.max_send_wr = depths.send;
  attributes.cap.max_recv_wr = depths.receive;
  attributes.cap.max_send_sge = kSendSges;
  attributes.cap.max_recv_sge = attributes.srq == nullptr ? 1 : 0;
  attributes.cap.max_inline_data = port_.settings.max_inline;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 0;
  QueuePair made(ibv_create_qp(port_.pd, &attributes));
  if (!made) {
    const int error_number = errno;
    auto failed = failed_on(port_,
                            "creating a queue pair with " + std::to_string(depths.send) + " sends, " +
                                std::to_string(depths.receive) + " receives and " +
                                std::to_string(port_.settings.max_inline) + " inline bytes (the device has " +
                                std::to_string(port_.limits.max_qp) + " for all processes of the node)",
                            error_number);
    failed.value().is_shortage = error_number == ENOMEM || error_number == EAGAIN || error_number == ENOSPC;
    return failed;
  }
  return RoomAndQueuePair{std::move(*room), std::move(made)};
}

Status RcQueuePairs::to_init(ibv_qp* queue_pair) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = port_.settings.pkey_index;
  attributes.port_num = port_.port_num;
  MemoryRoles roles = MemoryRole::kReadSource | MemoryRole::kWriteSink;
  if (port_.limits.atomic_cap != IBV_ATOMIC_NONE) {
    roles |= MemoryRole::kAtomicTarget;
  }
  attributes.qp_access_flags = access_flags(roles, port_.address.link);
  const int error_number =
      ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error_number == 0 ? Status() : failed_on(port_, "moving a queue pair to INIT", error_number);
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
  if (port_.address.link == Transport::kIwarp) {
    return failure(device_name(port_) +
                   " is an iWARP port, whose queue pairs only a communication manager can connect");
  }
  if (Status leads_there = check_path(port_, peer); !leads_there) {
    return leads_there;
  }
  if (ends.size() != queue_pairs_.size()) {
    return failure(std::to_string(ends.size()) + " ends for " + std::to_string(queue_pairs_.size()) + " queue pairs");
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    ibv_qp* const queue_pair = queue_pairs_[i].queue_pair.get();
    Status moved = to_ready_to_receive(queue_pair, peer, ends[i]);
    if (moved) {
      moved = to_ready_to_send(queue_pair, spec(i).kind, ends_[i]);
    }
    if (!moved) {
      return failure(
          "queue " + std::to_string(i) + " on " + device_name(port_) + " to queue pair " + std::to_string(ends[i].qpn),
          moved.error());
    }
  }
  return {};
}

Status RcQueuePairs::connect_by(const TransitionAttributes& attributes) {
  assert_on_progress_thread();
  if (port_.address.link == Transport::kIwarp) {
    return {};
  }
  for (std::size_t i = 0; i < queue_pairs_.size(); ++i) {
    if (Status up = bring_up(i, attributes); !up) {
      return failure("queue " + std::to_string(i) + " on " + device_name(port_), up.error());
    }
  }
  return {};
}

/// What concerns the two ends and the path between them comes from the communication manager, the rest from the user.
Status RcQueuePairs::bring_up(std::size_t index, const TransitionAttributes& attributes) const {
  ibv_qp* const queue_pair = queue_pairs_[index].queue_pair.get();
  const QueuePairSettings& settings = port_.settings;
  ibv_qp_attr receiving{};
  receiving.qp_state = IBV_QPS_RTR;
  ibv_qp_attr sending{};
  sending.qp_state = IBV_QPS_RTS;
  for (ibv_qp_attr* wanted : {&receiving, &sending}) {
    if (Status known = attributes(index, *wanted); !known) {
      return known;
    }
  }
  receiving.path_mtu = std::min(receiving.path_mtu, static_cast<ibv_mtu>(port_.address.mtu));
  // What a peer asks for and grants is for its device to keep; the manager does not compare it with ours.
  receiving.max_dest_rd_atomic =
      std::min(receiving.max_dest_rd_atomic, clamp_reads(port_.limits.max_qp_rd_atom, kReadsGranted));
  sending.max_rd_atomic = std::min(sending.max_rd_atomic, clamp_reads(port_.limits.max_qp_init_rd_atom, kReadsAsked));
  receiving.min_rnr_timer = settings.min_rnr_timer;
  if (settings.service_level != 0) {
    receiving.ah_attr.sl = settings.service_level;
  }
  if (settings.traffic_class != 0) {
    receiving.ah_attr.grh.traffic_class = settings.traffic_class;
  }
  if (port_.flow_label != 0) {
    receiving.ah_attr.grh.flow_label = port_.flow_label;
  }
  int error_number = ibv_modify_qp(queue_pair, &receiving, kToReadyToReceive);
  if (error_number != 0) {
    return failed_on(port_, "moving a queue pair to RTR", error_number);
  }
  set_transport_limits(sending, spec(index).kind);
  error_number = ibv_modify_qp(queue_pair, &sending, kToReadyToSend);
  return error_number == 0 ? Status() : failed_on(port_, "moving a queue pair to RTS", error_number);
}

Status RcQueuePairs::to_ready_to_receive(ibv_qp* queue_pair, const PortAddress& peer, const QueuePairEnd& end) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_to(port_, peer);
  attributes.dest_qp_num = end.qpn;
  attributes.rq_psn = end.psn;
  attributes.max_dest_rd_atomic = clamp_reads(port_.limits.max_qp_rd_atom, kReadsGranted);
  attributes.min_rnr_timer = port_.settings.min_rnr_timer;
  attributes.ah_attr = path_to(port_, peer);
  const int error_number = ibv_modify_qp(queue_pair, &attributes, kToReadyToReceive);
  return error_number == 0 ? Status() : failed_on(port_, "moving a queue pair to RTR", error_number);
}

void RcQueuePairs::set_transport_limits(ibv_qp_attr& attributes, QueueKind kind) const noexcept {
  attributes.timeout = port_.settings.timeout;
  attributes.retry_cnt = port_.settings.retry_count;
  // Credits keep P queues from ever meeting "receiver not ready": there it is an error to be seen at once.
  attributes.rnr_retry = kind == QueueKind::kPerPeer ? std::uint8_t{0} : port_.settings.rnr_retry;
}

Status RcQueuePairs::to_ready_to_send(ibv_qp* queue_pair, QueueKind kind, const QueuePairEnd& own_end) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  set_transport_limits(attributes, kind);
  attributes.sq_psn = own_end.psn;
  attributes.max_rd_atomic = clamp_reads(port_.limits.max_qp_init_rd_atom, kReadsAsked);
  const int error_number = ibv_modify_qp(queue_pair, &attributes, kToReadyToSend);
  return error_number == 0 ? Status() : failed_on(port_, "moving a queue pair to RTS", error_number);
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

Result<std::unique_ptr<QueuePairs>> make_rc_queue_pairs(const PortContext& port, const QueueSubset& queues) {
  assert_on_progress_thread();
  auto made = std::make_unique<RcQueuePairs>(port, queues);
  if (Status ready = made->make(); !ready) {
    return tl::unexpected(std::move(ready).error());
  }
  return made;
}

}  // namespace fabric::cpc
