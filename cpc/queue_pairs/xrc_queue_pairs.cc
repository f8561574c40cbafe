// SPDX-License-Identifier: BSD-3-Clause
//
// XRC queue pairs by libibverbs: a sender, and a target. InfiniBand Architecture Specification 1.4, annex A14; which
// attributes their transitions take is in the kernel's table of queue pair states (drivers/infiniband/core/verbs.c):
// a sender has no responder, and a target no requester.
#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "common/base/verbs_handle.h"
#include "common/rdma/access_flags.h"
#include "cpc/loop/progress_thread.h"
#include "cpc/queue_pairs/queue_pair_path.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "cpc/queue_pairs/random_bits.h"
#include "cpc/queue_pairs/xrc_counts.h"

namespace fabric::cpc {
namespace {

constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

Status modify(ibv_qp* queue_pair, ibv_qp_attr& attributes, ibv_qp_state state, int mask, const char* name) {
  attributes.qp_state = state;
  const int error_number = ibv_modify_qp(queue_pair, &attributes, mask | IBV_QP_STATE);
  return error_number == 0 ? Status() : verbs_failure(std::string("moving an XRC queue pair to ") + name, error_number);
}

Status to_init(const PortContext& port, ibv_qp* queue_pair, MemoryRoles roles) {
  ibv_qp_attr attributes{};
  attributes.pkey_index = port.settings.pkey_index;
  attributes.port_num = port.port_num;
  attributes.qp_access_flags = access_flags(roles, port.address.link);
  return modify(queue_pair, attributes, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

/// The way to the peer's queue pair, for RTR.
ibv_qp_attr path_attributes(const PortContext& port, const PortAddress& peer, const QueuePairEnd& end) {
  ibv_qp_attr attributes{};
  attributes.path_mtu = mtu_to(port, peer);
  attributes.dest_qp_num = end.qpn;
  attributes.rq_psn = end.psn;
  attributes.ah_attr = path_to(port, peer);
  return attributes;
}

Status check_peer(const PortContext& port, const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  if (Status leads_there = check_path(port, peer); !leads_there) {
    return leads_there;
  }
  return ends.size() == 1 ? Status() : Status(failure(std::to_string(ends.size()) + " ends for an XRC queue pair"));
}

bool is_in_error(ibv_qp* queue_pair) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr unused{};
  return ibv_query_qp(queue_pair, &attributes, IBV_QP_STATE, &unused) != 0 || attributes.qp_state == IBV_QPS_ERR ||
         attributes.qp_state == IBV_QPS_SQE;
}

/// All functions of both classes are for the progress thread.
class XrcSendQueuePair final : public QueuePairs {
 public:
  explicit XrcSendQueuePair(const PortContext& port) : port_(port) {}
  ~XrcSendQueuePair() override { queue_pair_.reset(); }  // before its room for completions

  [[nodiscard]] Status make();

  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {queue_pair_.get()}; }
  [[nodiscard]] Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) override;
  void flush() noexcept override;
  [[nodiscard]] bool are_broken() const noexcept override { return is_in_error(queue_pair_.get()); }

 private:
  [[nodiscard]] Status create(const CompletionDemand& completions);
  [[nodiscard]] Status bring_up(const PortAddress& peer, const QueuePairEnd& end);

  const PortContext& port_;
  CompletionQueueRoom room_;
  QueuePair queue_pair_;
  std::vector<QueuePairEnd> ends_;
};

Status XrcSendQueuePair::make() {
  const QueuePairSettings& settings = port_.settings;
  const QueueSpace space = sender_space(*port_.queues, settings.costs, settings.max_inline, settings.rdma_depth);
  const auto sends = static_cast<std::uint32_t>(space.entries());
  const auto most = static_cast<std::uint32_t>(std::max(port_.limits.max_qp_wr, 0));
  if (sends > most) {
    return failure("the sum of sd_max of all queues makes " + std::to_string(sends) + " work requests, and " +
                   device_name(port_) + " takes at most " + std::to_string(most) +
                   " per queue pair: lower it in btl_fabric_receive_queues");
  }
  const auto own = static_cast<std::uint32_t>(space.few_entries(kOwnSends));
  Status made = create({own, sends - own});
  if (made) {
    made = to_init(port_, queue_pair_.get(), MemoryRoles());
  }
  if (!made) {
    return failure(device_name(port_), made.error());
  }
  ends_ = {{queue_pair_->qp_num & 0xffffff, random_bits() & 0xffffff}};
  return {};
}

Status XrcSendQueuePair::create(const CompletionDemand& completions) {
  const std::uint32_t sends = completions.own + completions.shared;
  Result<CompletionQueueRoom> room = port_.completion_queues->reserve(completions);
  if (!room) {
    return tl::unexpected(std::move(room).error());
  }
  room_ = std::move(*room);
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_SEND;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  attributes.pd = port_.pd;
  attributes.send_cq = room_.cq();
  attributes.cap.max_send_wr = sends;
  attributes.cap.max_send_sge = kSendSges;
  attributes.cap.max_inline_data = port_.settings.max_inline;
  queue_pair_.reset(ibv_create_qp_ex(port_.device, &attributes));
  return queue_pair_ ? Status()
                     : verbs_failure("creating an XRC queue pair with " + std::to_string(sends) + " sends and " +
                                         std::to_string(port_.settings.max_inline) + " inline bytes",
                                     errno);
}

Status XrcSendQueuePair::connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  assert_on_progress_thread();
  if (Status fits = check_peer(port_, peer, ends); !fits) {
    return fits;
  }
  Status up = bring_up(peer, ends.front());
  if (up) {
    return {};
  }
  // Somebody else may try with a target of another process.
  ibv_qp_attr attributes{};
  if (!modify(queue_pair_.get(), attributes, IBV_QPS_RESET, 0, "RESET") ||
      !to_init(port_, queue_pair_.get(), MemoryRoles())) {
    flush();
  }
  return failure("sender on " + device_name(port_) + " to target " + std::to_string(ends.front().qpn), up.error());
}

Status XrcSendQueuePair::bring_up(const PortAddress& peer, const QueuePairEnd& end) {
  ibv_qp_attr attributes = path_attributes(port_, peer, end);
  if (Status ready = modify(queue_pair_.get(), attributes, IBV_QPS_RTR, kPath, "RTR"); !ready) {
    return ready;
  }
  attributes = {};
  attributes.sq_psn = ends_.front().psn;
  attributes.timeout = port_.settings.timeout;
  attributes.retry_cnt = port_.settings.retry_count;
  attributes.rnr_retry = port_.settings.rnr_retry;
  attributes.max_rd_atomic = clamp_reads(port_.limits.max_qp_init_rd_atom, kReadsAsked);
  return modify(queue_pair_.get(), attributes, IBV_QPS_RTS, kRequester | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, "RTS");
}

void XrcSendQueuePair::flush() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A device that refuses even this has lost the queue pair; destroying it is all that is left.
  (void)ibv_modify_qp(queue_pair_.get(), &attributes, IBV_QP_STATE);
}

/// A handle for a target. The queue pair goes when the last process has destroyed its handle.
class XrcTargetQueuePair final : public QueuePairs {
 public:
  /// The sequence numbers of a target start like its sender's: so every process that takes it knows them.
  XrcTargetQueuePair(const PortContext& port, const QueuePairEnd& sender) : port_(port), psn_(sender.psn) {}

  [[nodiscard]] Status make();
  [[nodiscard]] Status take(std::uint32_t target_qpn);

  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {queue_pair_.get()}; }
  [[nodiscard]] Status connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) override;
  void flush() noexcept override {}  // other processes receive by it
  [[nodiscard]] bool are_broken() const noexcept override { return is_in_error(queue_pair_.get()); }
  [[nodiscard]] XrcNumbers xrc_numbers() const override { return {0, srqs_}; }

 private:
  [[nodiscard]] Status number_srqs();
  [[nodiscard]] Status bring_up(const PortAddress& peer, const QueuePairEnd& end);

  const PortContext& port_;
  std::uint32_t psn_;
  bool is_connected_ = false;
  QueuePair queue_pair_;
  std::vector<QueuePairEnd> ends_;
  std::vector<std::uint32_t> srqs_;
};

Status XrcTargetQueuePair::make() {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = port_.xrcd;
  queue_pair_.reset(ibv_create_qp_ex(port_.device, &attributes));
  if (!queue_pair_) {
    return verbs_failure("creating an XRC target on " + device_name(port_), errno);
  }
  ends_ = {{queue_pair_->qp_num & 0xffffff, psn_}};
  return number_srqs();
}

Status XrcTargetQueuePair::take(std::uint32_t target_qpn) {
  ibv_qp_open_attr attributes{};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.qp_num = target_qpn;
  attributes.xrcd = port_.xrcd;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  queue_pair_.reset(ibv_open_qp(port_.device, &attributes));
  if (!queue_pair_) {
    return verbs_failure("opening XRC target " + std::to_string(target_qpn) + " on " + device_name(port_), errno);
  }
  is_connected_ = true;
  ends_ = {{target_qpn, psn_}};
  return number_srqs();
}

Status XrcTargetQueuePair::number_srqs() {
  for (std::size_t i = 0; i < port_.queues->count(); ++i) {
    if ((*port_.queues)[i].kind != QueueKind::kXrc) {
      continue;
    }
    std::uint32_t number = 0;
    if (const int error_number = ibv_get_srq_num(port_.srqs[i], &number); error_number != 0) {
      return verbs_failure("asking for the number of an XRC shared receive queue of " + device_name(port_),
                           error_number);
    }
    srqs_.push_back(number & 0xffffff);
  }
  return {};
}

Status XrcTargetQueuePair::connect(const PortAddress& peer, const std::vector<QueuePairEnd>& ends) {
  assert_on_progress_thread();
  if (is_connected_) {
    return {};  // by the process that made it
  }
  Status up = check_peer(port_, peer, ends);
  if (up) {
    up = bring_up(peer, ends.front());
  }
  if (!up) {
    return failure("target on " + device_name(port_), up.error());
  }
  is_connected_ = true;
  return {};
}

Status XrcTargetQueuePair::bring_up(const PortAddress& peer, const QueuePairEnd& end) {
  MemoryRoles roles = MemoryRole::kReadSource | MemoryRole::kWriteSink;
  if (port_.limits.atomic_cap != IBV_ATOMIC_NONE) {
    roles |= MemoryRole::kAtomicTarget;
  }
  if (Status ready = to_init(port_, queue_pair_.get(), roles); !ready) {
    return ready;
  }
  ibv_qp_attr attributes = path_attributes(port_, peer, end);
  attributes.max_dest_rd_atomic = clamp_reads(port_.limits.max_qp_rd_atom, kReadsGranted);
  attributes.min_rnr_timer = port_.settings.min_rnr_timer;
  if (Status ready = modify(queue_pair_.get(), attributes, IBV_QPS_RTR, kPath | kResponder, "RTR"); !ready) {
    return ready;
  }
  attributes = {};
  attributes.sq_psn = psn_;
  attributes.timeout = port_.settings.timeout;
  return modify(queue_pair_.get(), attributes, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, "RTS");
}

template <class T>
Result<std::unique_ptr<QueuePairs>> finish(std::unique_ptr<T> made, Status done) {
  assert_on_progress_thread();
  if (!done) {
    return tl::unexpected(std::move(done).error());
  }
  return made;
}

Result<std::unique_ptr<QueuePairs>> make_sender(const PortContext& port) {
  auto made = std::make_unique<XrcSendQueuePair>(port);
  Status done = made->make();
  return finish(std::move(made), std::move(done));
}

Result<std::unique_ptr<QueuePairs>> make_target(const PortContext& port, const QueuePairEnd& sender,
                                                std::uint32_t target_qpn) {
  if (port.xrcd == nullptr) {
    return failure(device_name(port) + " has no XRC domain");
  }
  auto made = std::make_unique<XrcTargetQueuePair>(port, sender);
  Status done = target_qpn == 0 ? made->make() : made->take(target_qpn);
  if (done) {
    (target_qpn == 0 ? xrc_targets_made : xrc_targets_opened).fetch_add(1, std::memory_order_relaxed);
  }
  return finish(std::move(made), std::move(done));
}

}  // namespace

XrcMaker make_xrc_queue_pairs() {
  return {make_sender, make_target};
}

}  // namespace fabric::cpc
