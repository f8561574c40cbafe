// SPDX-License-Identifier: BSD-3-Clause
//
// The objects of XRC, for tests of softhca.
#pragma once

#include <fcntl.h>

#include "test/softhca/verbs_world.h"

namespace verbs_test {

/// The domain of a file. `flags`: of open(2).
inline ibv_xrcd* open_domain(const World& w, int fd, int flags = O_CREAT) {
  ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, fd, flags};
  return ibv_open_xrcd(w.context, &attributes);
}

inline ibv_srq* make_srq(const World& w, ibv_xrcd* xrcd, uint32_t* number) {
  ibv_srq_init_attr_ex attributes{};
  attributes.attr = {16, 1, 0};
  attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attributes.srq_type = IBV_SRQT_XRC;
  attributes.pd = w.pd;
  attributes.xrcd = xrcd;
  attributes.cq = w.cq;
  ibv_srq* srq = ibv_create_srq_ex(w.context, &attributes);
  ck_assert_ptr_nonnull(srq);
  ck_assert_int_eq(ibv_get_srq_num(srq, number), 0);
  return srq;
}

/// In RESET.
inline ibv_qp* new_target(const World& w, ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attributes.xrcd = xrcd;
  ibv_qp* target = ibv_create_qp_ex(w.context, &attributes);
  ck_assert_ptr_nonnull(target);
  return target;
}

/// Null if there is none with that number.
inline ibv_qp* open_target(const World& w, ibv_xrcd* xrcd, uint32_t number) {
  ibv_qp_open_attr attributes{IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, number, xrcd,
                              nullptr, IBV_QPT_XRC_RECV};
  ibv_qp* target = ibv_open_qp(w.context, &attributes);
  ck_assert(target == nullptr || target->qp_num == number);
  return target;
}

/// A request to the queue with that number.
inline ibv_send_wr to(uint32_t srqn, ibv_wr_opcode opcode, ibv_sge& list, uint64_t wr_id = 1) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.qp_type.xrc.remote_srqn = srqn;
  return wr;
}

}  // namespace verbs_test
