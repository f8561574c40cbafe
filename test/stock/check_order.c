// SPDX-License-Identifier: BSD-3-Clause
//
// What MPI itself never does: sends that name their transmit context, in the descriptor's field `order`.
//   mpirun -np 2 --mca btl fabric,self --mca btl_fabric_tx_contexts N check_order CONTEXT
// The test looks in the timeline whether that context's connection was made, which its first message does.
#include "btl_user.h"

enum { messages = 500, tag = MCA_BTL_TAG_MAX - 1 };

static int arrived;

static void receive(mca_btl_base_module_t* btl, mca_btl_base_tag_t which, mca_btl_base_descriptor_t* descriptor,
                    void* data) {
  int64_t value = -1;
  (void)btl, (void)which, (void)data;
  if (descriptor->des_segments[0].seg_len != sizeof value) fail("a message has another length");
  memcpy(&value, descriptor->des_segments[0].seg_addr.pval, sizeof value);
  if (value != arrived) fail("messages of one context overtake each other");
  arrived++;
}

static void send_all(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint, uint8_t context) {
  for (int64_t i = 0; i < messages; i++) {
    mca_btl_base_descriptor_t* descriptor = NULL;
    while ((descriptor = btl->btl_alloc(btl, endpoint, context, sizeof i, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) == NULL)
      opal_progress();
    memcpy(descriptor->des_segments[0].seg_addr.pval, &i, sizeof i);
    if (btl->btl_send(btl, endpoint, descriptor, tag) < 0) fail("a message was not taken");
  }
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 2) fail("usage: mpirun -np 2 check_order CONTEXT");
  mca_btl_base_active_message_trigger[tag].cbfunc = receive;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    mca_btl_base_module_t* btl = fabric_module();
    struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, 1);
    send_all(btl, endpoint, (uint8_t)atoi(argv[1]));
  } else {
    while (arrived < messages) opal_progress();
    printf("%d messages arrived\n", arrived);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
