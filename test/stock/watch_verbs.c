// SPDX-License-Identifier: BSD-3-Clause
//
// A library to be preloaded, which tells what a program asks of the device, whatever it is: LD_PRELOAD=watch_verbs.so and
// WATCH_VERBS=FILE, to which .RANK is appended. The file gets a line for each queue pair that is connected, and one when it is
// destroyed:
//   to rtr: DEVICE:PORT dlid N path_bits N flow_label N mtu N min_rnr_timer N sl N traffic_class N pkey 0xN
//   to rts: DEVICE:PORT timeout N retry_count N rnr_retry N
//   gone: DEVICE:PORT BYTES        those of all its send requests
// and, when the connection manager listens, when it connects, and when a device is closed,
//   listens: PORT
//   connects: ip | gid pkey 0xN    what the peer is addressed by, and the partition key that a gid comes with
//   polled: DEVICE N               completions that were asked for at once, at most
// and for completion queues
//   cq: DEVICE N                   one for N completions is made
//   cq grows: DEVICE N             or resized
// and for memory
//   mr: DEVICE 0xACCESS BYTES      is registered
#include <dlfcn.h>
#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { most_queue_pairs = 4096, most_contexts = 64 };

struct queue_pair {
  struct ibv_qp* _Atomic qp;
  int port;
  unsigned pkey;
  atomic_ullong bytes;
};
static struct queue_pair queue_pairs[most_queue_pairs];

struct device {
  struct ibv_context* context;
  int (*post_send)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);
  int (*poll_cq)(struct ibv_cq*, int, struct ibv_wc*);
  int most_polled;
};
static struct device devices[most_contexts];

static FILE* output(void) {
  static FILE* file;
  char name[1000];
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (file == NULL) {
    snprintf(name, sizeof name, "%s.%s", getenv("WATCH_VERBS"), rank != NULL ? rank : "0");
    file = fopen(name, "a");
    if (file == NULL) abort();
    setvbuf(file, NULL, _IOLBF, 0);
  }
  return file;
}

static struct queue_pair* find(struct ibv_qp* qp) {
  for (int i = 0; i < most_queue_pairs; i++)
    if (atomic_load(&queue_pairs[i].qp) == qp) return &queue_pairs[i];
  return NULL;
}

static struct device* device_of(struct ibv_context* context) {
  for (int i = 0; i < most_contexts; i++)
    if (devices[i].context == context) return &devices[i];
  abort();
}

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* requests, struct ibv_send_wr** bad) {
  struct queue_pair* known = find(qp);
  for (struct ibv_send_wr* wr = requests; known != NULL && wr != NULL; wr = wr->next)
    for (int i = 0; i < wr->num_sge; i++) atomic_fetch_add(&known->bytes, wr->sg_list[i].length);
  return device_of(qp->context)->post_send(qp, requests, bad);
}

static int poll_cq(struct ibv_cq* cq, int count, struct ibv_wc* completions) {
  struct device* device = device_of(cq->context);
  if (count > device->most_polled) device->most_polled = count;
  return device->poll_cq(cq, count, completions);
}

struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* attributes) {
  struct ibv_qp* (*next)(struct ibv_pd*, struct ibv_qp_init_attr*) =
      (struct ibv_qp * (*)(struct ibv_pd*, struct ibv_qp_init_attr*)) dlsym(RTLD_NEXT, "ibv_create_qp");
  struct ibv_qp* qp = next(pd, attributes);
  if (qp == NULL) return NULL;
  if (pd->context->ops.post_send != post_send) {
    struct device* device = device_of(NULL);
    device->context = pd->context;
    device->post_send = pd->context->ops.post_send;
    device->poll_cq = pd->context->ops.poll_cq;
    pd->context->ops.post_send = post_send;
    pd->context->ops.poll_cq = poll_cq;
  }
  struct queue_pair* mine = find(NULL);
  if (mine == NULL) abort();
  mine->port = 0;
  atomic_store(&mine->bytes, 0);
  atomic_store(&mine->qp, qp);
  return qp;
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attributes, int mask) {
  int (*next)(struct ibv_qp*, struct ibv_qp_attr*, int) =
      (int (*)(struct ibv_qp*, struct ibv_qp_attr*, int))dlsym(RTLD_NEXT, "ibv_modify_qp");
  struct queue_pair* known = find(qp);
  const char* name = ibv_get_device_name(qp->context->device);
  if (known != NULL && mask & IBV_QP_PORT) known->port = attributes->port_num;
  if (known != NULL && mask & IBV_QP_PKEY_INDEX) {
    __be16 key = 0;
    ibv_query_pkey(qp->context, (uint8_t)known->port, attributes->pkey_index, &key);
    known->pkey = (unsigned)((key & 0xff) << 8 | key >> 8);
  }
  if (known != NULL && mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_RTR)
    fprintf(
        output(),
        "to rtr: %s:%d dlid %d path_bits %d flow_label %u mtu %d min_rnr_timer %d sl %d traffic_class %d pkey 0x%x\n",
        name, known->port, attributes->ah_attr.dlid, attributes->ah_attr.src_path_bits,
        attributes->ah_attr.grh.flow_label, attributes->path_mtu, attributes->min_rnr_timer, attributes->ah_attr.sl,
        attributes->ah_attr.grh.traffic_class, known->pkey);
  if (known != NULL && mask & IBV_QP_STATE && attributes->qp_state == IBV_QPS_RTS)
    fprintf(output(), "to rts: %s:%d timeout %d retry_count %d rnr_retry %d\n", name, known->port, attributes->timeout,
            attributes->retry_cnt, attributes->rnr_retry);
  return next(qp, attributes, mask);
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  int (*next)(struct ibv_qp*) = (int (*)(struct ibv_qp*))dlsym(RTLD_NEXT, "ibv_destroy_qp");
  struct queue_pair* known = find(qp);
  if (known != NULL) {
    fprintf(output(), "gone: %s:%d %llu\n", ibv_get_device_name(qp->context->device), known->port,
            atomic_load(&known->bytes));
    atomic_store(&known->qp, NULL);
  }
  return next(qp);
}

int ibv_close_device(struct ibv_context* context) {
  int (*next)(struct ibv_context*) = (int (*)(struct ibv_context*))dlsym(RTLD_NEXT, "ibv_close_device");
  for (int i = 0; i < most_contexts; i++)
    if (devices[i].context == context) {
      fprintf(output(), "polled: %s %d\n", ibv_get_device_name(context->device), devices[i].most_polled);
      devices[i].context = NULL;
    }
  return next(context);
}

#undef ibv_reg_mr
static void tell_region(const struct ibv_pd* pd, unsigned access, size_t bytes, const struct ibv_mr* mr) {
  if (mr != NULL) fprintf(output(), "mr: %s 0x%x %zu\n", ibv_get_device_name(pd->context->device), access, bytes);
}
struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, int) =
      (struct ibv_mr * (*)(struct ibv_pd*, void*, size_t, int)) dlsym(RTLD_NEXT, "ibv_reg_mr");
  struct ibv_mr* mr = next(pd, address, length, access);
  tell_region(pd, (unsigned)access, length, mr);
  return mr;
}
/// What ibv_reg_mr() is where flags may be optional.
struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, uint64_t, unsigned) =
      (struct ibv_mr * (*)(struct ibv_pd*, void*, size_t, uint64_t, unsigned)) dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
  struct ibv_mr* mr = next(pd, address, length, iova, access);
  tell_region(pd, access, length, mr);
  return mr;
}

struct ibv_cq* ibv_create_cq(struct ibv_context* context, int entries, void* data, struct ibv_comp_channel* channel,
                             int vector) {
  struct ibv_cq* (*next)(struct ibv_context*, int, void*, struct ibv_comp_channel*, int) =
      (struct ibv_cq * (*)(struct ibv_context*, int, void*, struct ibv_comp_channel*, int))
          dlsym(RTLD_NEXT, "ibv_create_cq");
  struct ibv_cq* cq = next(context, entries, data, channel, vector);
  if (cq != NULL) fprintf(output(), "cq: %s %d\n", ibv_get_device_name(context->device), entries);
  return cq;
}

int ibv_resize_cq(struct ibv_cq* cq, int entries) {
  int (*next)(struct ibv_cq*, int) = (int (*)(struct ibv_cq*, int))dlsym(RTLD_NEXT, "ibv_resize_cq");
  int error = next(cq, entries);
  if (error == 0) fprintf(output(), "cq grows: %s %d\n", ibv_get_device_name(cq->context->device), entries);
  return error;
}

int rdma_connect(struct rdma_cm_id* id, struct rdma_conn_param* parameters) {
  int (*next)(struct rdma_cm_id*, struct rdma_conn_param*) =
      (int (*)(struct rdma_cm_id*, struct rdma_conn_param*))dlsym(RTLD_NEXT, "rdma_connect");
  const struct sockaddr* peer = rdma_get_peer_addr(id);
  if (peer->sa_family == AF_IB)
    fprintf(output(), "connects: gid pkey 0x%x\n", ntohs(((const struct sockaddr_ib*)peer)->sib_pkey));
  else
    fputs("connects: ip\n", output());
  return next(id, parameters);
}

int rdma_listen(struct rdma_cm_id* id, int backlog) {
  int (*next)(struct rdma_cm_id*, int) = (int (*)(struct rdma_cm_id*, int))dlsym(RTLD_NEXT, "rdma_listen");
  int status = next(id, backlog);
  if (status == 0) fprintf(output(), "listens: %d\n", ntohs(rdma_get_src_port(id)));
  return status;
}
