// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI asks for the endpoint of a process that is spoken to for the first time while it holds a lock of its own
// (mca_bml_lock). A message that another thread takes may make it wait for that lock in its callback:
//   mpirun -np 3 --mca btl fabric,self check_first_contact
// In rank 0 the main thread is in the callback of a message of rank 1, and waits for a lock that a second thread has while it
// asks for the endpoint to rank 2.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "btl_user.h"

enum { tag = MCA_BTL_TAG_MAX - 1, seconds = 20 };

static pthread_mutex_t upper_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_held, is_in_callback, arrived;

static void wait_for(atomic_int* flag) {
  for (time_t start = time(NULL); !atomic_load(flag);)
    if (time(NULL) - start > seconds) fail("the other thread does not come");
}

static void receive(mca_btl_base_module_t* btl, mca_btl_base_tag_t which, mca_btl_base_descriptor_t* descriptor,
                    void* data) {
  (void)btl, (void)which, (void)descriptor, (void)data;
  wait_for(&is_held);
  atomic_store(&is_in_callback, 1);
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += seconds;
  if (pthread_mutex_timedlock(&upper_lock, &end) != 0) fail("the endpoint was not to be had while a callback ran");
  pthread_mutex_unlock(&upper_lock);
  atomic_store(&arrived, 1);
}

static void* meet(void* rank) {
  mca_btl_base_module_t* btl = fabric_module();
  pthread_mutex_lock(&upper_lock);
  atomic_store(&is_held, 1);
  wait_for(&is_in_callback);
  endpoint_of(btl, *(const uint32_t*)rank);
  pthread_mutex_unlock(&upper_lock);
  return NULL;
}

int main(int argc, char** argv) {
  int rank, level;
  pthread_t thread;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (level != MPI_THREAD_MULTIPLE) fail("this Open MPI has no threads");
  mca_btl_base_active_message_trigger[tag].cbfunc = receive;
  uint32_t third = 2;
  if (rank == 0 && pthread_create(&thread, NULL, meet, &third) != 0) fail("no thread can be made");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    while (!atomic_load(&arrived)) opal_progress();
    pthread_join(thread, NULL);
    printf("the endpoint was made while a callback ran\n");
  } else if (rank == 1) {
    mca_btl_base_module_t* btl = fabric_module();
    struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, 0);
    mca_btl_base_descriptor_t* descriptor =
        btl->btl_alloc(btl, endpoint, MCA_BTL_NO_ORDER, 8, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    if (descriptor == NULL || btl->btl_send(btl, endpoint, descriptor, tag) < 0) fail("a message was not taken");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
