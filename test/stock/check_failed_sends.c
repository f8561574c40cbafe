// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of messages to a process that dies, in the eyes of an upper layer that goes on without it, as Open MPI's PML does
// from 5.0 on (ULFM):
//   mpirun -np 2 --enable-recovery --mca btl fabric,self --mca btl_fabric_free_list_max 64 check_failed_sends [before]
// Rank 1 takes no more messages (with "before", it has never been connected either), and dies half a second later. Rank 0 has handed over all buffers that there are by then, some of
// which it has left to the BTL and some not. The error callback is called for the peer; each message's callback is called
// once, with success or OPAL_ERR_UNREACH; every buffer is free again; and another message is refused.
#include <signal.h>
#include <unistd.h>

#include "btl_user.h"

enum { tag = MCA_BTL_TAG_MAX - 1, seconds = 60 };

static int failures;         // that the BTL has told of
static int handed_over;      // messages whose callback is due
static int sent, unreached;  // by what their callbacks said
static opal_proc_t* peer;

static void receive(mca_btl_base_module_t* btl, mca_btl_base_tag_t which, mca_btl_base_descriptor_t* descriptor,
                    void* data) {
  (void)btl, (void)which, (void)descriptor, (void)data;
}

static void failed(mca_btl_base_module_t* btl, int32_t flags, opal_proc_t* process, char* what) {
  (void)btl, (void)flags, (void)what;
  if (process != peer) fail("the error callback names another process");
  failures++;
}

static void done(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint,
                 mca_btl_base_descriptor_t* descriptor, int status) {
  (void)endpoint;
  if (status != OPAL_SUCCESS && status != OPAL_ERR_UNREACH)
    fail("a callback's status is neither success nor unreachable");
  if (status != OPAL_SUCCESS && failures == 0) fail("a message failed before the error callback was called");
  (status == OPAL_SUCCESS ? sent++ : unreached++);
  if (!(descriptor->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) btl->btl_free(btl, descriptor);
}

static mca_btl_base_descriptor_t* buffer(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint,
                                         size_t bytes, int flags) {
  mca_btl_base_descriptor_t* descriptor = btl->btl_alloc(btl, endpoint, MCA_BTL_NO_ORDER, bytes, (uint32_t)flags);
  if (descriptor != NULL) {
    memset(descriptor->des_segments[0].seg_addr.pval, 'm', bytes);
    descriptor->des_cbfunc = done;
  }
  return descriptor;
}

// Sends all buffers for messages of so many bytes, every other one left to the BTL.
static int send_all(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint, size_t bytes) {
  int count = 0;
  for (;; count++) {
    const int owned = count % 2 == 0 ? MCA_BTL_DES_FLAGS_BTL_OWNERSHIP : 0;
    mca_btl_base_descriptor_t* descriptor = buffer(btl, endpoint, bytes, owned | MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    if (descriptor == NULL) return count;
    if (btl->btl_send(btl, endpoint, descriptor, tag) < 0) fail("a message was not taken while the peer was there");
    handed_over++;
  }
}

// How many of those there are now; they are kept.
static int take_all(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint, size_t bytes) {
  int count = 0;
  while (buffer(btl, endpoint, bytes, 0) != NULL) count++;
  return count;
}

int main(int argc, char** argv) {
  static const size_t sizes[] = {8, 4000, 60000};
  enum { kinds = sizeof sizes / sizeof *sizes };
  int rank, counts[kinds];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  mca_btl_base_active_message_trigger[tag].cbfunc = receive;
  if (argc < 2 || strcmp(argv[1], "before") != 0) MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    usleep(500000);
    raise(SIGKILL);
  }
  mca_btl_base_module_t* btl = fabric_module();
  struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, 1);
  peer = process_of(1);
  btl->btl_register_error(btl, failed);
  for (int i = 0; i < kinds; i++) counts[i] = send_all(btl, endpoint, sizes[i]);
  for (double start = MPI_Wtime(); sent + unreached < handed_over && MPI_Wtime() - start < seconds;) opal_progress();
  printf("%d messages: %d sent, %d unreached, %d failures\n", handed_over, sent, unreached, failures);
  if (sent + unreached != handed_over || unreached == 0) fail("not every message has ended, or all were sent");
  if (failures != 1) fail("the error callback was not called once");
  mca_btl_base_descriptor_t* more = buffer(btl, endpoint, 8, 0);
  if (more == NULL || btl->btl_send(btl, endpoint, more, tag) != OPAL_ERR_UNREACH) fail("another message was taken");
  btl->btl_free(btl, more);
  for (int i = 0; i < kinds; i++)
    if (take_all(btl, endpoint, sizes[i]) < counts[i]) fail("buffers were lost");
  printf("all messages ended\n");
  fflush(stdout);
  _exit(0);
}
