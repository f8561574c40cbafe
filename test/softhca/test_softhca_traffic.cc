// SPDX-License-Identifier: BSD-3-Clause
//
// Sends to itself what test/softhca/top.test then looks for: 10 messages of 100 bytes, 3 RDMA WRITEs of 1000, 2 READs of 500 and
// one FETCH_ADD, of 8. Says "moved", waits for a line on stdin, destroys its queue pairs, says "gone", and waits for another.
// Written against the public verbs API alone.
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void require(bool good, const char* what, int line) {
  if (good) return;
  fprintf(stderr, "line %d: not so: %s\n", line, what);
  exit(1);
}
#define REQUIRE(condition) require(condition, #condition, __LINE__)

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

alignas(8) uint8_t memory[8192];  // the upper half is the target
ibv_context* context;
ibv_pd* pd;
ibv_cq* cq;
ibv_mr* mr;

void open_first_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr && list[0] != nullptr);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  REQUIRE(context != nullptr);
  pd = ibv_alloc_pd(context);
  cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
  mr = ibv_reg_mr(pd, memory, sizeof memory, kAccess);
  REQUIRE(pd != nullptr && cq != nullptr && mr != nullptr);
}

ibv_qp* make_qp() {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {16, 16, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  REQUIRE(qp != nullptr);
  return qp;
}

void connect(ibv_qp* qp, const ibv_qp* to) {
  ibv_port_attr port{};
  ibv_qp_attr attr{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  REQUIRE(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = to->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.hop_limit = 1;
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  REQUIRE(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void await_completion() {
  ibv_wc wc{};
  int got = 0;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  REQUIRE(got == 1 && wc.status == IBV_WC_SUCCESS);
}

void move(ibv_qp* from, ibv_qp* to, ibv_wr_opcode opcode, uint32_t length) {
  ibv_sge sge{reinterpret_cast<uint64_t>(memory), length, mr->lkey};
  ibv_sge target{reinterpret_cast<uint64_t>(memory + sizeof memory / 2), length, mr->lkey};
  if (opcode == IBV_WR_SEND) {
    ibv_recv_wr receive{1, nullptr, &target, 1};
    ibv_recv_wr* bad = nullptr;
    REQUIRE(ibv_post_recv(to, &receive, &bad) == 0);
  }
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {target.addr, 1, 0, mr->rkey};
  } else {
    wr.wr.rdma = {target.addr, mr->rkey};
  }
  REQUIRE(ibv_post_send(from, &wr, &bad) == 0);
  await_completion();
  if (opcode == IBV_WR_SEND) await_completion();
}

void say(const char* what) {
  char line[16];
  puts(what);
  fflush(stdout);
  if (fgets(line, sizeof line, stdin) == nullptr) exit(0);
}

}  // namespace

int main() {
  open_first_device();
  ibv_qp* from = make_qp();
  ibv_qp* to = make_qp();
  connect(from, to);
  connect(to, from);
  for (int i = 0; i < 10; ++i) move(from, to, IBV_WR_SEND, 100);
  for (int i = 0; i < 3; ++i) move(from, to, IBV_WR_RDMA_WRITE, 1000);
  for (int i = 0; i < 2; ++i) move(from, to, IBV_WR_RDMA_READ, 500);
  move(from, to, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  say("moved");
  REQUIRE(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
  say("gone");
  return 0;
}
