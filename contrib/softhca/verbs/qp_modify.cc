// SPDX-License-Identifier: BSD-3-Clause
// ibv_modify_qp: first everything is checked, then everything is written, under the lock under which peers read it.
#include "device/port.h"
#include "transport/engine.h"
#include "transport/polling_stopped.h"
#include "transport/transport.h"
#include "verbs/address_handle.h"
#include "verbs/call.h"
#include "verbs/qp_states.h"

namespace softhca {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;
constexpr unsigned kAccessFlags = (IBV_ACCESS_HUGETLB << 1) - 1;

ibv_qp_state state_of(const Qp& qp) {
  return static_cast<ibv_qp_state>(qp.shared->state.load(std::memory_order_acquire));
}

// The transition that an iWARP device makes: the connection manager's handshake brings all that the table asks for.
bool may_move_iwarp(ibv_qp_state from, ibv_qp_state to, int mask) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return may_move(IBV_QPT_RC, from, to, mask);
  const QpTransition* t = find_transition(IBV_QPT_RC, from, to);
  return t != nullptr && (mask & ~(t->required | t->optional | IBV_QP_STATE)) == 0;
}

int check_values(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  Fabric& fabric = *Fabric::get();
  const ibv_device_attr limits = limits_of(*qp.owner);
  const auto given = [mask](int bit) { return (mask & bit) != 0; };
  if (given(IBV_QP_PORT) && !valid_port(attr.port_num)) return EINVAL;
  if (given(IBV_QP_PKEY_INDEX) && attr.pkey_index >= pkey_count(fabric.config())) return EINVAL;
  if (given(IBV_QP_ACCESS_FLAGS) && (attr.qp_access_flags & ~(kAccessFlags | IBV_ACCESS_OPTIONAL_RANGE)) != 0)
    return EINVAL;
  if (given(IBV_QP_PATH_MTU)) {
    const uint32_t port = given(IBV_QP_AV) ? attr.ah_attr.port_num : qp.attr.port_num;
    if (attr.path_mtu < IBV_MTU_256) return EINVAL;
    if (valid_port(port) && attr.path_mtu > port_attributes(fabric, port_id_on(*qp.owner, port)).active_mtu)
      return EINVAL;
  }
  if (given(IBV_QP_AV)) {
    if (const int error = check_address(fabric, attr.ah_attr)) return error;
  }
  if (given(IBV_QP_ALT_PATH)) return EINVAL;  // no automatic path migration (device_cap_flags say so)
  if (given(IBV_QP_PATH_MIG_STATE) && attr.path_mig_state != IBV_MIG_MIGRATED) return EINVAL;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > limits.max_qp_init_rd_atom) return EINVAL;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > limits.max_qp_rd_atom) return EINVAL;
  if (given(IBV_QP_TIMEOUT) && attr.timeout > 31) return EINVAL;
  if (given(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return EINVAL;
  if (given(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return EINVAL;
  if (given(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return EINVAL;
  if (given(IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xffffff) return EINVAL;
  return 0;
}

// Remembers the attributes for ibv_query_qp and the requester.
void remember(Qp& qp, const ibv_qp_attr& attr, int mask) {
  ibv_qp_attr& mine = qp.attr;
  const auto given = [mask](int bit) { return (mask & bit) != 0; };
  if (given(IBV_QP_ACCESS_FLAGS)) mine.qp_access_flags = attr.qp_access_flags;
  if (given(IBV_QP_PKEY_INDEX)) mine.pkey_index = attr.pkey_index;
  if (given(IBV_QP_PORT)) mine.port_num = attr.port_num;
  if (given(IBV_QP_QKEY)) mine.qkey = attr.qkey;
  if (given(IBV_QP_AV)) mine.ah_attr = attr.ah_attr;
  if (given(IBV_QP_PATH_MTU)) mine.path_mtu = attr.path_mtu;
  if (given(IBV_QP_TIMEOUT)) mine.timeout = attr.timeout;
  if (given(IBV_QP_RETRY_CNT)) mine.retry_cnt = attr.retry_cnt;
  if (given(IBV_QP_RNR_RETRY)) mine.rnr_retry = attr.rnr_retry;
  if (given(IBV_QP_RQ_PSN)) mine.rq_psn = attr.rq_psn & kPsnMask;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC)) mine.max_rd_atomic = attr.max_rd_atomic;
  if (given(IBV_QP_MIN_RNR_TIMER)) mine.min_rnr_timer = attr.min_rnr_timer;
  if (given(IBV_QP_SQ_PSN)) mine.sq_psn = attr.sq_psn & kPsnMask;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC)) mine.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (given(IBV_QP_DEST_QPN)) mine.dest_qp_num = attr.dest_qp_num;
  // Asked for anew whenever the QP is drained.
  if (given(IBV_QP_STATE) && attr.qp_state == IBV_QPS_SQD)
    mine.en_sqd_async_notify = given(IBV_QP_EN_SQD_ASYNC_NOTIFY) ? attr.en_sqd_async_notify : uint8_t{0};
}

// The half that peers see. shared->lock is held.
void show(Qp& qp, ibv_qp_state to, int mask) {
  Fabric& fabric = *Fabric::get();
  QpShared& shared = *qp.shared;
  const ibv_qp_attr& mine = qp.attr;
  const auto given = [mask](int bit) { return (mask & bit) != 0; };
  if (to == IBV_QPS_RESET) {
    shared.port_id = shared.dest_port_id = shared.dest_qpn = 0;
    shared.access = 0;
    shared.comm_established = 0;
    // (layout.h, kQpEventMask; who adds events to a target holds its lock)
    shared.events.store(qp.target ? (shared.events.load() | kQpEventMask) + 1 : 0, std::memory_order_relaxed);
    shared.must_wait.store(0, std::memory_order_relaxed);
    shared.taken_valid.store(0, std::memory_order_relaxed);
  }
  if (given(IBV_QP_PORT)) shared.port_id = port_id_on(*qp.owner, mine.port_num);
  if (given(IBV_QP_PKEY_INDEX)) {
    shared.pkey_index = mine.pkey_index;
    shared.pkey = pkey_at(fabric.config(), mine.pkey_index);
  }
  if (given(IBV_QP_ACCESS_FLAGS)) shared.access = mine.qp_access_flags;
  if (given(IBV_QP_QKEY)) shared.qkey = mine.qkey;
  if (given(IBV_QP_AV)) shared.dest_port_id = resolve(fabric, shared.port_id, mine.ah_attr);
  if (given(IBV_QP_DEST_QPN)) shared.dest_qpn = mine.dest_qp_num;
  if (given(IBV_QP_PATH_MTU)) shared.path_mtu = static_cast<uint8_t>(mine.path_mtu);
  if (given(IBV_QP_MIN_RNR_TIMER)) shared.min_rnr_timer = mine.min_rnr_timer;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC)) shared.max_dest_rd_atomic = mine.max_dest_rd_atomic;
  if (given(IBV_QP_RQ_PSN)) shared.expected_psn.store(mine.rq_psn, std::memory_order_relaxed);
  shared.state.store(to, std::memory_order_release);
}

// What has to happen to the send queue in the new state. sq_mutex is held.
void act(Qp& qp, ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_ERR) flush(qp);  // also if a peer has moved it there and the engine has not looked yet
  if (to == IBV_QPS_RESET) drop_requests(qp);
  // It is drained anew the next time, even if nothing is posted meanwhile.
  if (from == IBV_QPS_SQD && to == IBV_QPS_RTS && qp.sq.wait == SendWait::Drained) qp.sq.wait = SendWait::None;
  if (to == IBV_QPS_RTS && (from == IBV_QPS_SQD || from == IBV_QPS_SQE || from == IBV_QPS_RTR)) run_send_queue(qp);
  if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) run_send_queue(qp);  // finishes what it has begun, then says so
}

// XRC QPs have one half each. Attributes of the other half are ignored, as the kernel does.
int without_other_half(const Qp& qp, int mask) {
  switch (qp.qp_base.qp_type) {
    case IBV_QPT_XRC_SEND:
      return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
      return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default:
      return mask;
  }
}

}  // namespace

int modify_qp_internal(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Fabric& fabric = *Fabric::get();
  mask = without_other_half(qp, mask);
  const bool resets = (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RESET;
  const PollingStopped stopped(resets ? &qp : nullptr);
  std::lock_guard guard(qp.sq_mutex);
  ibv_qp_state from{};
  ibv_qp_state to{};
  {
    RobustGuard shared_guard(qp.shared->lock, fabric.stamp());
    from = state_of(qp);
    to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
    if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from) return EINVAL;
    const bool allowed = is_iwarp() ? may_move_iwarp(from, to, mask) : may_move(qp.qp_base.qp_type, from, to, mask);
    if (!allowed) return EINVAL;
    if (const int error = check_values(qp, attr, mask)) return error;
    if (to == IBV_QPS_RESET) qp.attr = ibv_qp_attr{};
    remember(qp, attr, mask);
    show(qp, to, mask);
  }
  qp.qp_base.state = to;
  qp.sq.route = {};
  if ((mask & IBV_QP_DEST_QPN) != 0) find_peer(qp);
  if ((mask & IBV_QP_SQ_PSN) != 0) qp.sq.psn = qp.attr.sq_psn;
  if (!qp.target) act(qp, from, to);
  return 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  Qp& mine = *Qp::of(qp);
  if (const int error = cannot_use(*mine.owner)) return error;
  if (const int error = SOFTHCA_FAULTY("ibv_modify_qp")) return error;
  // Only the connection manager can connect a QP of an iWARP device.
  if (is_iwarp() && (mask & IBV_QP_STATE) != 0 && attr->qp_state != IBV_QPS_INIT && attr->qp_state != IBV_QPS_ERR &&
      attr->qp_state != IBV_QPS_RESET)
    return EINVAL;
  return modify_qp_internal(mine, *attr, mask);
}
