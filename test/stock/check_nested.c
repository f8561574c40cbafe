// SPDX-License-Identifier: BSD-3-Clause
//
// A callback waits for another message, and makes progress meanwhile, while a connection comes about for which another thread wants
// the locks of all contexts:
//   mpirun -np 2 --mca btl fabric,self --mca btl_fabric_tx_contexts 4 check_nested
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "btl_user.h"

enum { hold = MCA_BTL_TAG_MAX - 1, release = MCA_BTL_TAG_MAX - 2, greeting = MCA_BTL_TAG_MAX - 3 };
enum { low = 1, unused_yet = 2, high = 3, seconds = 20 };
static const double connecting = 0.5;  // seconds

static atomic_int is_held, is_released, is_over, greeted;

static void send_to(uint32_t rank, uint8_t context, mca_btl_base_tag_t tag) {
  mca_btl_base_module_t* btl = fabric_module();
  struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, rank);
  mca_btl_base_descriptor_t* descriptor = btl->btl_alloc(btl, endpoint, context, 8, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  if (descriptor == NULL) fail("there is no buffer");
  if (btl->btl_send(btl, endpoint, descriptor, tag) < 0) fail("a message was not taken");
}

static void greets(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                   void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  atomic_fetch_add(&greeted, 1);
}

static void releases(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                     void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  atomic_store(&is_released, 1);
}

// With the lock of context 3, by which the other message comes too.
static void holds(mca_btl_base_module_t* btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* descriptor,
                  void* data) {
  (void)btl, (void)tag, (void)descriptor, (void)data;
  atomic_store(&is_held, 1);
  for (time_t start = time(NULL); !atomic_load(&is_released); opal_progress())
    if (time(NULL) - start > seconds) fail("a callback that makes progress gets no message");
}

static void* progress(void* unused) {
  while (!atomic_load(&is_over)) opal_progress();
  return unused;
}

static void wait_greeted(int times) {
  while (atomic_load(&greeted) < times) opal_progress();
}

int main(int argc, char** argv) {
  int rank, level;
  pthread_t threads[2];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  mca_btl_base_active_message_trigger[hold].cbfunc = holds;
  mca_btl_base_active_message_trigger[release].cbfunc = releases;
  mca_btl_base_active_message_trigger[greeting].cbfunc = greets;
  MPI_Barrier(MPI_COMM_WORLD);
  send_to(1 - (uint32_t)rank, low, greeting);
  send_to(1 - (uint32_t)rank, high, greeting);
  wait_greeted(2);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    for (int i = 0; i < 2; i++)
      if (pthread_create(&threads[i], NULL, progress, NULL) != 0) fail("no thread can be made");
    // No MPI here: the main thread must not be the one that is called back.
    send_to(1, low, greeting);
    while (!atomic_load(&is_held)) usleep(1000);
    send_to(1, low, greeting);
    while (!atomic_load(&is_released)) usleep(1000);
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts("check_nested: the message came within the callback");
  } else {
    wait_greeted(3);  // rank 0 has its threads
    send_to(0, high, hold);
    wait_greeted(4);  // one of them is in its callback
    send_to(0, unused_yet, greeting);
    for (double end = MPI_Wtime() + connecting; MPI_Wtime() < end;)
      opal_progress();  // the other one hears of the connection
    send_to(0, high, release);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
