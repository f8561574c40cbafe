// SPDX-License-Identifier: BSD-3-Clause
//
// What the device alone takes for a ping-pong of small messages between two processes of one host that share a processor: verbs
// without MPI. Who waits gives up the processor between two looks, as Open MPI does with mpi_yield_when_idle; ib_send_lat does not,
// and waits for the end of its time slice. Messages are copied by the device (inline), and one in 32 is signalled. Prints half a
// round trip, microseconds:
//   verbs_pingpong DEVICE GID-INDEX BYTES ROUND-TRIPS
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { receives = 128, signal_every = 32, most_bytes = 64, port = 1 };

static struct ibv_cq* cq;
static struct ibv_qp* qp;
static struct ibv_mr* region;
static char memory[2 * most_bytes];

static void require(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "verbs_pingpong: %s\n", what);
  exit(1);
}

// The other process has failed: there is nothing to wait for. A signal handler.
static void child_ended(int number, siginfo_t* child, void* context) {
  (void)number, (void)context;
  if (child->si_code != CLD_EXITED || child->si_status != 0) _exit(1);
}

static struct ibv_context* open_device(const char* name) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = NULL;
  for (int i = 0; list != NULL && list[i] != NULL && context == NULL; i++)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  require(context != NULL, "there is no such device, or it cannot be opened");
  return context;
}

static void make_queue_pair(struct ibv_context* context) {
  struct ibv_pd* pd = ibv_alloc_pd(context);
  require(pd != NULL, "no protection domain");
  region = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  cq = ibv_create_cq(context, 2 * receives, NULL, NULL, 0);
  require(region != NULL && cq != NULL, "no memory region or completion queue");
  struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  wanted.cap = (struct ibv_qp_cap){receives, receives, 1, 1, most_bytes};
  qp = ibv_create_qp(pd, &wanted);
  require(qp != NULL, "no queue pair");
}

// With the queue pair of the process at the other end of `channel`, on the same port.
static void connect_queue_pair(struct ibv_context* context, int gid_index, int channel) {
  union ibv_gid gid;
  struct ibv_port_attr here;
  uint32_t peer = 0;
  require(ibv_query_gid(context, port, gid_index, &gid) == 0 && ibv_query_port(context, port, &here) == 0,
          "no such GID");
  require(write(channel, &qp->qp_num, sizeof peer) == sizeof peer && read(channel, &peer, sizeof peer) == sizeof peer,
          "the other process is gone");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = port};
  int failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = port;
  attr.ah_attr.dlid = here.lid;
  attr.ah_attr.is_global = here.link_layer == IBV_LINK_LAYER_ETHERNET;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
  attr.ah_attr.grh.hop_limit = 1;
  failed |= ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  failed |= ibv_modify_qp(
      qp, &attr,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  require(failed == 0, "the queue pairs cannot be connected");
}

static void post_receives(int count) {
  struct ibv_sge piece = {(uintptr_t)memory, most_bytes, region->lkey};
  struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1}, *bad;
  while (count-- > 0) require(ibv_post_recv(qp, &request, &bad) == 0, "a receive was refused");
}

static void send_one(uint32_t bytes) {
  static int unsignaled;
  struct ibv_sge piece = {(uintptr_t)(memory + most_bytes), bytes, region->lkey};
  struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  request.send_flags = IBV_SEND_INLINE | (++unsignaled == signal_every ? IBV_SEND_SIGNALED : 0);
  unsignaled %= signal_every;
  require(ibv_post_send(qp, &request, &bad) == 0, "a send was refused");
}

static void receive_one(void) {
  static int taken;
  for (int arrived = 0; arrived == 0;) {
    struct ibv_wc completions[16];
    const int count = ibv_poll_cq(cq, 16, completions);
    for (int i = 0; i < count; i++) {
      require(completions[i].status == IBV_WC_SUCCESS, "a message has failed");
      arrived += (completions[i].opcode & IBV_WC_RECV) != 0;
    }
    if (count == 0) sched_yield();
    taken += arrived;
  }
  if (taken >= receives / 2) {
    post_receives(taken);
    taken = 0;
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

int main(int argc, char** argv) {
  const int bytes = argc == 5 ? atoi(argv[3]) : 0, round_trips = argc == 5 ? atoi(argv[4]) : 0;
  if (bytes < 1 || bytes > most_bytes || round_trips < 1) {
    fprintf(stderr, "usage: verbs_pingpong DEVICE GID-INDEX BYTES ROUND-TRIPS   (1 to %d bytes)\n", most_bytes);
    return 2;
  }
  int channel[2];
  require(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0, "no sockets");
  const struct sigaction action = {.sa_sigaction = child_ended, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGCHLD, &action, NULL);
  const pid_t parent = getpid();
  const pid_t child = fork();  // before the device is opened
  require(child >= 0, "no second process");
  const bool first = child != 0;
  if (!first) require(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent, "the first process is gone");
  struct ibv_context* context = open_device(argv[1]);
  make_queue_pair(context);
  connect_queue_pair(context, atoi(argv[2]), channel[first]);
  post_receives(receives);
  char ready = 1;
  require(write(channel[first], &ready, 1) == 1 && read(channel[first], &ready, 1) == 1, "the other process is gone");
  double begun = 0;
  for (int i = -round_trips / 10; i < round_trips; i++) {
    if (i == 0) begun = now();
    if (first) send_one((uint32_t)bytes);
    receive_one();
    if (!first) send_one((uint32_t)bytes);
  }
  if (!first) return 0;
  printf("%.2f\n", (now() - begun) / round_trips / 2);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
