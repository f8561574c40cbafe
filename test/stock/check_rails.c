// SPDX-License-Identifier: BSD-3-Clause
//
// Rank 0 reads and writes the memory of rank 1, which has registered it with each of its ports in turn, through each of its own
// ports: as when two hosts have their devices in different orders, and Open MPI pairs the first with the first. Waits for each by
// its callback, and then for another by a flush. Prints "N ports, N reads".
//   mpirun -np 2 check_rails [WORDS]            of memory, 1000; many go over several ports at once
#include "btl_user.h"

enum { MOST = 16 };

static int words_count = 1000;

struct target {
  uint64_t address;
  unsigned char handle[64];
};

static int done;

static void completed(mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* endpoint, void* local,
                      mca_btl_base_registration_handle_t* handle, void* context, void* data, int status) {
  (void)btl, (void)endpoint, (void)local, (void)handle, (void)context, (void)data;
  if (status != 0) fail("a transfer has failed");
  done++;
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
  if (!done) fail("a transfer was under way after the flush");
}

// Reads all of the target's words from there, or writes them, and checks that the callback has come once.
static void transfer(mca_btl_base_module_t* btl, const struct target* target, int* words, uint64_t from, int is_write,
                     int by_flush) {
  const size_t size = (size_t)words_count * sizeof *words;
  struct mca_btl_base_endpoint_t* endpoint = endpoint_of(btl, 1);
  mca_btl_base_registration_handle_t* handle =
      btl->btl_register_mem(btl, endpoint, words, size, MCA_BTL_REG_FLAG_LOCAL_WRITE);
  if (handle == NULL) fail("memory cannot be registered");
  const mca_btl_base_module_put_fn_t move = is_write ? btl->btl_put : btl->btl_get;
  for (;;) {
    done = 0;
    int rc = move(btl, endpoint, words, target->address + from * size, handle, (void*)target->handle, size, 0,
                  MCA_BTL_NO_ORDER, completed, NULL, NULL);
    if (rc == 0) break;
    if (rc != OPAL_ERR_OUT_OF_RESOURCE && rc != OPAL_ERR_TEMP_OUT_OF_RESOURCE) fail("a transfer is refused");
    opal_progress();
  }
  if (by_flush) flush(btl, endpoint);
  while (!done) opal_progress();
  for (int i = 0; i < 10; i++) opal_progress();
  if (done != 1) fail("an end is told twice");
  btl->btl_deregister_mem(btl, handle);
}

static void check_words(const int* words, int first, int step) {
  for (int i = 0; i < words_count; i++)
    if (words[i] != step * i + first) fail("what was read is something else");
}

// Reads the first half of the target's memory, writes the second, and reads that.
static void go_over(mca_btl_base_module_t* btl, const struct target* target, int by_flush) {
  static int round;
  int* words = calloc((size_t)words_count, sizeof *words);
  transfer(btl, target, words, 0, 0, by_flush);
  check_words(words, 1, 3);
  for (int i = 0; i < words_count; i++) words[i] = 5 * i + round;
  transfer(btl, target, words, 1, 1, by_flush);
  memset(words, 0, (size_t)words_count * sizeof *words);
  transfer(btl, target, words, 1, 0, by_flush);
  check_words(words, round++, 5);
  free(words);
}

int main(int argc, char** argv) {
  mca_btl_base_module_t* modules[MOST];
  int rank, reads = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 1) words_count = atoi(argv[1]);
  const size_t size = 2 * (size_t)words_count * sizeof(int);
  int* words = malloc(size);
  for (int i = 0; i < words_count; i++) words[i] = 3 * i + 1;
  const int count = all_modules(modules);
  for (int theirs = 0; theirs < count; theirs++) {
    struct target target = {(uint64_t)(uintptr_t)words, {0}};
    mca_btl_base_module_t* btl = modules[theirs];
    mca_btl_base_registration_handle_t* handle = NULL;
    if (rank == 1) {
      handle =
          btl->btl_register_mem(btl, NULL, words, size, MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_WRITE);
      if (handle == NULL || btl->btl_registration_handle_size > sizeof target.handle)
        fail("memory cannot be registered");
      memcpy(target.handle, handle, btl->btl_registration_handle_size);
      MPI_Send(&target, sizeof target, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    } else if (rank == 0) {
      MPI_Recv(&target, sizeof target, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int ours = 0; ours < count; ours++, reads++) {
        go_over(modules[ours], &target, 1);  // first, while there may be no connection yet
        go_over(modules[ours], &target, 0);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (handle != NULL) btl->btl_deregister_mem(btl, handle);
  }
  if (rank == 0) printf("check_rails: %d ports, %d reads\n", count, reads);
  MPI_Finalize();
  return 0;
}
