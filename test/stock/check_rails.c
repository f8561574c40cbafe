// SPDX-License-Identifier: BSD-3-Clause
//
// Rank 0 reads the memory of rank 1, which has registered it with each of its ports in turn, through each of its own ports: as
// when two hosts have their devices in different orders, and Open MPI pairs the first with the first. Waits for each read by
// its callback, and then for another by a flush. Prints "N reads".
#include "btl_user.h"

enum { WORDS = 1000, MOST = 16 };

struct target {
  uint64_t address;
  unsigned char handle[64];
};

static int done;

static void completed(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint, void* local,
                      mca_btl_base_registration_handle_t* handle, void* context, void* data, int status) {
  (void)btl, (void)endpoint, (void)local, (void)handle, (void)context, (void)data;
  if (status != 0) fail("a read has failed");
  done = 1;
}

static int all_modules(mca_btl_base_module_t** modules) {
  int count = 0;
  mca_btl_base_selected_module_t* selected;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
  if (strcmp(selected->btl_component->btl_version.mca_component_name, "fabric") == 0 && count < MOST)
    modules[count++] = selected->btl_module;
  return count;
}

// Is over when the flush is, of the peer or of all.
static void flush(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint) {
  static int turn;
  if (btl->btl_flush(btl, turn++ % 2 == 0 ? endpoint : NULL) != 0) fail("a flush has failed");
  if (!done) fail("a read was under way after the flush");
}

static void read_by(mca_btl_base_module_t* btl, const struct target* target, int by_flush) {
  static int words[WORDS];
  memset(words, 0, sizeof words);
  struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, 1);
  mca_btl_base_registration_handle_t* handle =
      btl->btl_register_mem(btl, endpoint, words, sizeof words, MCA_BTL_REG_FLAG_LOCAL_WRITE);
  if (handle == NULL) fail("memory cannot be registered");
  for (;;) {
    done = 0;
    int rc = btl->btl_get(btl, endpoint, words, target->address, handle, (void*)target->handle, sizeof words, 0,
                          MCA_BTL_NO_ORDER, completed, NULL, NULL);
    if (rc == 0) break;
    if (rc != OPAL_ERR_OUT_OF_RESOURCE && rc != OPAL_ERR_TEMP_OUT_OF_RESOURCE) fail("a read is refused");
    opal_progress();
  }
  if (by_flush) flush(btl, endpoint);
  while (!done) opal_progress();
  for (int i = 0; i < WORDS; i++)
    if (words[i] != 3 * i + 1) fail("what was read is something else");
  btl->btl_deregister_mem(btl, handle);
}

int main(int argc, char** argv) {
  static int words[WORDS];
  mca_btl_base_module_t* modules[MOST];
  int rank, reads = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < WORDS; i++) words[i] = 3 * i + 1;
  const int count = all_modules(modules);
  for (int theirs = 0; theirs < count; theirs++) {
    struct target target = {(uint64_t)(uintptr_t)words, {0}};
    mca_btl_base_module_t* btl = modules[theirs];
    mca_btl_base_registration_handle_t* handle = NULL;
    if (rank == 1) {
      handle = btl->btl_register_mem(btl, NULL, words, sizeof words, MCA_BTL_REG_FLAG_REMOTE_READ);
      if (handle == NULL || btl->btl_registration_handle_size > sizeof target.handle)
        fail("memory cannot be registered");
      memcpy(target.handle, handle, btl->btl_registration_handle_size);
      MPI_Send(&target, sizeof target, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    } else if (rank == 0) {
      MPI_Recv(&target, sizeof target, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int ours = 0; ours < count; ours++, reads++) {
        read_by(modules[ours], &target, 1);  // first, while there may be no connection yet
        read_by(modules[ours], &target, 0);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (handle != NULL) btl->btl_deregister_mem(btl, handle);
  }
  if (rank == 0) printf("check_rails: %d ports, %d reads\n", count, reads);
  MPI_Finalize();
  return 0;
}
