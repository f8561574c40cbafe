// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/bench/softhca counts: one kind of call on the first device, of a pair of queue pairs in this process. Run by it
// under callgrind:
//   valgrind --tool=callgrind --collect-atstart=no verbs_instructions WHAT BYTES
// WHAT is post_send, post_inline, post_recv, poll_sent, poll_received or poll_empty. Prints how many such calls were collected.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

enum { kWindow = 16, kRounds = 64, kWarmUp = 8, kMost = 8192 + 256 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_mr* mr;
static struct ibv_cq *sent, *received;
static char* memory;

static void require(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "verbs_instructions: %s failed\n", what);
  exit(1);
}

static struct ibv_qp* make(void) {
  struct ibv_qp_init_attr attr = {.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = kWindow;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = 64;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  require(qp != NULL, "ibv_create_qp");
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  require(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
  return qp;
}

static void connect_to(struct ibv_qp* qp, uint32_t other) {
  struct ibv_port_attr port;
  union ibv_gid gid;
  require(ibv_query_port(context, 1, &port) == 0 && ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_port");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = other};
  attr.max_dest_rd_atomic = attr.min_rnr_timer = 1;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.port_num = attr.ah_attr.is_global = attr.ah_attr.grh.hop_limit = 1;
  attr.ah_attr.grh.dgid = gid;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "RTS");
}

static void take(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int count;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  require(count == 1 && wc.status == IBV_WC_SUCCESS, "a request");
}

int main(int argc, char** argv) {
  require(argc == 3, "reading the arguments");
  const char* what = argv[1];
  const uint32_t bytes = (uint32_t)atoi(argv[2]);
  require(bytes <= kMost, "reading the size");
  struct ibv_device** list = ibv_get_device_list(NULL);
  require(list != NULL && list[0] != NULL, "ibv_get_device_list");
  context = ibv_open_device(list[0]);
  require(context != NULL, "ibv_open_device");
  pd = ibv_alloc_pd(context);
  memory = calloc(2, kMost);
  mr = ibv_reg_mr(pd, memory, 2 * (size_t)kMost, IBV_ACCESS_LOCAL_WRITE);
  sent = ibv_create_cq(context, 2 * kWindow, NULL, NULL, 0);
  received = ibv_create_cq(context, 2 * kWindow, NULL, NULL, 0);
  require(pd != NULL && mr != NULL && sent != NULL && received != NULL, "making objects");
  struct ibv_qp *from = make(), *to = make();
  connect_to(from, to->qp_num);
  connect_to(to, from->qp_num);

  struct ibv_sge source = {(uintptr_t)memory, bytes, mr->lkey};
  struct ibv_sge sink = {(uintptr_t)memory + kMost, kMost, mr->lkey};
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  struct ibv_recv_wr receive = {.sg_list = &sink, .num_sge = 1}, *bad_receive;
  if (strcmp(what, "post_inline") == 0) send.send_flags = IBV_SEND_INLINE;
  for (int round = 0; round < kWarmUp + kRounds; ++round) {
    const int counts = round >= kWarmUp;
#define COLLECTED(name, loop)                              \
  do {                                                     \
    const int collect = counts && strcmp(what, name) == 0; \
    if (collect) CALLGRIND_TOGGLE_COLLECT;                 \
    for (int i = 0; i < kWindow; ++i) loop;                \
    if (collect) CALLGRIND_TOGGLE_COLLECT;                 \
  } while (0)
    COLLECTED("post_recv", require(ibv_post_recv(to, &receive, &bad_receive) == 0, "ibv_post_recv"));
    COLLECTED(send.send_flags != 0 ? "post_inline" : "post_send",
              require(ibv_post_send(from, &send, &bad_send) == 0, "ibv_post_send"));
    COLLECTED("poll_sent", take(sent));
    COLLECTED("poll_received", take(received));
    struct ibv_wc wc;
    COLLECTED("poll_empty", require(ibv_poll_cq(received, 1, &wc) == 0, "an empty poll"));
  }
  printf("%d\n", kRounds * kWindow);
  return 0;
}
