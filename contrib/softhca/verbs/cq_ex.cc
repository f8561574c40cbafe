// SPDX-License-Identifier: BSD-3-Clause
// Extended completion queues. The entry that start_poll or next_poll found is Cq::current.
#include <ctime>

#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/completion_queue.h"
#include "verbs/parent_domain.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

const CqEntry& entry_of(ibv_cq_ex* cq) {
  return *static_cast<Cq*>(cq)->current;
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(entry_of(cq).opcode);
}
uint32_t read_vendor_err(ibv_cq_ex*) {
  return 0;
}
uint32_t read_byte_len(ibv_cq_ex* cq) {
  return entry_of(cq).byte_len;
}
__be32 read_imm_data(ibv_cq_ex* cq) {
  return entry_of(cq).imm_or_rkey;
}
uint32_t read_qp_num(ibv_cq_ex* cq) {
  return entry_of(cq).qp_num;
}
uint32_t read_src_qp(ibv_cq_ex* cq) {
  return entry_of(cq).src_qp;
}
unsigned read_wc_flags(ibv_cq_ex* cq) {
  return entry_of(cq).wc_flags;
}
uint32_t read_slid(ibv_cq_ex* cq) {
  return entry_of(cq).slid;
}
uint8_t read_sl(ibv_cq_ex* cq) {
  return entry_of(cq).sl;
}
uint8_t read_dlid_path_bits(ibv_cq_ex*) {
  return 0;
}
uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return entry_of(cq).timestamp_ns;
}

uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const uint64_t now = static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(wall.tv_nsec);
  return now - (Fabric::now_ns() - entry_of(cq).timestamp_ns);
}

constexpr uint64_t kWcFlags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                              IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if ((attr->wc_flags & ~kWcFlags) != 0) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & ~static_cast<uint32_t>(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) != 0)
    return fail(EOPNOTSUPP);
  const bool in_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (in_domain && (attr->parent_domain == nullptr || attr->parent_domain->context != context ||
                    parent_domain(attr->parent_domain) == nullptr))
    return fail(EINVAL);
  // Overruns are not ignored; single-threaded use needs nothing else.
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
      (attr->flags & ~static_cast<uint32_t>(IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) != 0)
    return fail(EOPNOTSUPP);
  Cq* cq = create_completion_queue(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
  if (cq == nullptr) return nullptr;
  cq->wc_flags = static_cast<uint32_t>(attr->wc_flags);
  if (in_domain) {
    cq->domain = static_cast<Pd*>(attr->parent_domain);
    cq->domain->users.fetch_add(1);
  }
  cq->read_opcode = read_opcode;
  cq->read_vendor_err = read_vendor_err;
  // The others only if asked for, as the manual page has it.
  const auto asked = [attr](uint64_t flag) { return (attr->wc_flags & flag) != 0; };
  cq->read_wc_flags = read_wc_flags;
  if (asked(IBV_WC_EX_WITH_BYTE_LEN)) cq->read_byte_len = read_byte_len;
  if (asked(IBV_WC_EX_WITH_IMM)) cq->read_imm_data = read_imm_data;
  if (asked(IBV_WC_EX_WITH_QP_NUM)) cq->read_qp_num = read_qp_num;
  if (asked(IBV_WC_EX_WITH_SRC_QP)) cq->read_src_qp = read_src_qp;
  if (asked(IBV_WC_EX_WITH_SLID)) cq->read_slid = read_slid;
  if (asked(IBV_WC_EX_WITH_SL)) cq->read_sl = read_sl;
  if (asked(IBV_WC_EX_WITH_DLID_PATH_BITS)) cq->read_dlid_path_bits = read_dlid_path_bits;
  if (asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) cq->read_completion_ts = read_completion_ts;
  if (asked(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
    cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
  set_extended_poll(*cq);
  return cq;
}

// Events are never held back: any moderation is fulfilled.
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  if (const int error = cannot_use(*Context::of(cq->context))) return error;
  return (attr->attr_mask & ~static_cast<uint32_t>(IBV_CQ_ATTR_MODERATE)) != 0 ? EOPNOTSUPP : 0;
}

}  // namespace softhca
