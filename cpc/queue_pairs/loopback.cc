// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/loopback.h"

#include <algorithm>
#include <cerrno>

#include "common/base/verbs_handle.h"
#include "common/rdma/access_flags.h"
#include "cpc/queue_pairs/queue_pair_path.h"

namespace fabric::cpc {
namespace {

Result<QueuePair> make_end(const PortContext& port, ibv_cq* cq, std::uint32_t sends) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = sends;
  attributes.cap.max_recv_wr = 1;
  attributes.cap.max_send_sge = kSendSges;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = port.settings.max_inline;
  QueuePair made(ibv_create_qp(port.pd, &attributes));
  if (!made) {
    return verbs_failure("creating a queue pair to ourselves with " + std::to_string(sends) + " sends", errno);
  }
  return made;
}

Status modify(const QueuePair& queue_pair, ibv_qp_attr& attributes, int mask, const char* state) {
  const int error_number = ibv_modify_qp(queue_pair.get(), &attributes, mask | IBV_QP_STATE);
  return error_number == 0 ? Status()
                           : verbs_failure(std::string("moving a queue pair to ourselves to ") + state, error_number);
}

Status bring_up(const PortContext& port, const QueuePair& own, const QueuePair& other) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = port.settings.pkey_index;
  attributes.port_num = port.port_num;
  attributes.qp_access_flags =
      access_flags(MemoryRole::kReadSource | MemoryRole::kWriteSink | MemoryRole::kAtomicTarget, port.address.link);
  if (Status done = modify(own, attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"); !done) {
    return done;
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(port.address.mtu);
  attributes.dest_qp_num = other->qp_num;
  attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(std::clamp(port.limits.max_qp_rd_atom, 0, kReadsGranted));
  attributes.min_rnr_timer = port.settings.min_rnr_timer;
  attributes.ah_attr = published_path_to(port, port.address);
  if (Status done = modify(own, attributes,
                           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                               IBV_QP_MIN_RNR_TIMER,
                           "RTR");
      !done) {
    return done;
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = port.settings.timeout;
  attributes.retry_cnt = port.settings.retry_count;
  attributes.max_rd_atomic = static_cast<std::uint8_t>(std::clamp(port.limits.max_qp_init_rd_atom, 0, kReadsAsked));
  return modify(own, attributes,
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, "RTS");
}

}  // namespace

Result<Loopback> make_loopback(const PortContext& port, const QueueSpace& sends) {
  const auto entries = static_cast<std::uint32_t>(sends.entries());
  Result<CompletionQueueRoom> room = port.completion_queues->reserve(entries);
  if (!room) {
    return tl::unexpected(std::move(room).error());
  }
  Loopback loopback{std::move(*room), nullptr, nullptr};
  Result<QueuePair> near = make_end(port, loopback.room.cq(), entries);
  Result<QueuePair> far = make_end(port, loopback.room.cq(), 1);
  if (!near || !far) {
    return tl::unexpected((near ? far : near).error());
  }
  loopback.near = std::move(*near);
  loopback.far = std::move(*far);
  Status up = bring_up(port, loopback.far, loopback.near);
  if (up) {
    up = bring_up(port, loopback.near, loopback.far);
  }
  if (!up) {
    return tl::unexpected(std::move(up).error());
  }
  return loopback;
}

}  // namespace fabric::cpc
