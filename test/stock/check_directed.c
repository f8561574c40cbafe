// SPDX-License-Identifier: BSD-3-Clause
//
// A callback sends a message to a context whose lock another thread holds in a callback of its own, for as long as it takes:
//   mpirun -np 2 --mca btl fabric,self --mca btl_fabric_tx_contexts 4 check_directed
// The sender must not wait, or the two would wait for each other, and the message must arrive all the same, before another one that
// is sent that way later.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "btl_user.h"

enum {
  hold = MCA_BTL_TAG_MAX - 1,
  answer = MCA_BTL_TAG_MAX - 2,
  number = MCA_BTL_TAG_MAX - 3,
  greeting = MCA_BTL_TAG_MAX - 4
};
enum { low = 1, high = 3, messages = 20, seconds = 20 };

static atomic_int is_held, is_sent, is_over, arrived, greeted;

static void wait_for(atomic_int* flag) {
  for (time_t start = time(NULL); !atomic_load(flag);)
    if (time(NULL) - start > seconds) fail("the other thread does not come");
}

static void send_to(uint32_t rank, uint8_t context, mca_btl_base_tag_t tag, int64_t value) {
  mca_btl_base_module_t* btl = fabric_module();
  struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, rank);
  mca_btl_base_descriptor_t* descriptor =
      btl->btl_alloc(btl, endpoint, context, sizeof value, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  if (descriptor == NULL) fail("there is no buffer");
  memcpy(descriptor->des_segments[0].seg_addr.pval, &value, sizeof value);
  if (btl->btl_send(btl, endpoint, descriptor, tag) < 0) fail("a message was not taken");
}

// What is behind the connections of both contexts: to make one takes the locks of all contexts.
static void greets(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                   void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  atomic_fetch_add(&greeted, 1);
}

// Context 3 of rank 0.
static void holds(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                  void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  atomic_store(&is_held, 1);
  wait_for(&is_sent);
}

// Context 1 of rank 0.
static void answers(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                    void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  for (int64_t i = 0; i < messages; i++) send_to(1, high, number, i);
  atomic_store(&is_sent, 1);
}

// Rank 1.
static void counts(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                   void* data) {
  int64_t value = -1;
  (void)btl, (void)tag, (void)data;
  memcpy(&value, descriptor->des_segments[0].seg_addr.pval, sizeof value);
  if (value != arrived) fail("messages of one context overtake each other");
  arrived++;
}

static void* progress(void* unused) {
  while (!atomic_load(&is_over)) opal_progress();
  return unused;
}

static MPI_T_pvar_session session;
static MPI_T_pvar_handle left, named;

// It counts from now on.
static MPI_T_pvar_handle begin_to_count(const char* name) {
  MPI_T_pvar_handle handle;
  int index, elements;
  if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
      MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &elements) != MPI_SUCCESS)
    fail("there is no such counter");
  return handle;
}

static unsigned long long read_counter(MPI_T_pvar_handle handle) {
  unsigned long long value = 0;
  if (MPI_T_pvar_read(session, handle, &value) != MPI_SUCCESS) fail("a counter cannot be read");
  return value;
}

int main(int argc, char** argv) {
  int rank, level;
  pthread_t threads[2];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_T_init_thread(MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (MPI_T_pvar_session_create(&session) != MPI_SUCCESS) fail("there are no counters");
  left = begin_to_count("btl_fabric_messages_left_to_a_context");
  named = begin_to_count("btl_fabric_messages_directed_by_index");
  mca_btl_base_active_message_trigger[hold].cbfunc = holds;
  mca_btl_base_active_message_trigger[answer].cbfunc = answers;
  mca_btl_base_active_message_trigger[number].cbfunc = counts;
  mca_btl_base_active_message_trigger[greeting].cbfunc = greets;
  MPI_Barrier(MPI_COMM_WORLD);
  send_to(1 - (uint32_t)rank, low, greeting, 0);
  send_to(1 - (uint32_t)rank, high, greeting, 0);
  while (atomic_load(&greeted) < 2) opal_progress();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int i = 0; i < 2; i++)
      if (pthread_create(&threads[i], NULL, progress, NULL) != 0) fail("no thread can be made");
    // No MPI here: the main thread must not be the one that is called back.
    send_to(1, low, greeting, 0);
    wait_for(&is_held);
    send_to(1, low, greeting, 0);
    wait_for(&is_sent);
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  } else {
    while (atomic_load(&greeted) < 3) opal_progress();  // rank 0 has its threads
    send_to(0, high, hold, 0);
    while (atomic_load(&greeted) < 4) opal_progress();  // one of them is in its callback
    send_to(0, low, answer, 0);
    while (arrived < messages) opal_progress();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    if (read_counter(left) != messages) fail("other numbers of messages were left to a context");
    if (read_counter(named) != messages + 4) fail("other numbers of messages named their context");
    printf("%d messages were left to a context and arrived\n", messages);
  }
  MPI_T_finalize();
  MPI_Finalize();
  return 0;
}
