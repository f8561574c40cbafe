// SPDX-License-Identifier: BSD-3-Clause
//
// Streams from one MPI process to another: puts, gets or messages, one after the other, from and to the same few places in
// memory, as ib_write_bw and ib_read_bw do, so that caches have the same part in both. Before it times, it checks the content.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { depth = 16 };  // operations before a flush

static unsigned char *local, *window_memory;
static MPI_Win window;
static int rank;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "rma: %s (rank %d)\n", what, rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static unsigned char pattern(int seed, size_t i) {
  return (unsigned char)((size_t)seed * 37 + i + (i >> 8) * 5 + (i >> 16) * 11);
}
static void fill(unsigned char* at, size_t size, int seed) {
  for (size_t i = 0; i < size; i++) at[i] = pattern(seed, i);
}
static void check(const unsigned char* at, size_t size, int seed) {
  for (size_t i = 0; i < size; i++)
    if (at[i] != pattern(seed, i)) fail("wrong content");
}

// Seconds that this process has computed.
static double computed(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void one_sided(int get, int size, int count) {
  for (int i = 0; i < count; i++) {
    if (get)
      MPI_Get(local, size, MPI_BYTE, 1, 0, size, MPI_BYTE, window);
    else
      MPI_Put(local, size, MPI_BYTE, 1, 0, size, MPI_BYTE, window);
    if ((i + 1) % depth == 0) MPI_Win_flush(1, window);
  }
  MPI_Win_flush(1, window);
}

// Two are under way at any time: while one goes, the next is announced.
static void messages(int size, int count) {
  MPI_Request under_way[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  for (int i = 0; i < count; i++) {
    unsigned char* place = local + (size_t)(i % 2) * (size_t)size;
    MPI_Wait(&under_way[i % 2], MPI_STATUS_IGNORE);
    if (rank == 0)
      MPI_Isend(place, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &under_way[i % 2]);
    else
      MPI_Irecv(place, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &under_way[i % 2]);
  }
  MPI_Waitall(2, under_way, MPI_STATUSES_IGNORE);
}

// Returns what rank 0 has computed, without its waiting for the other.
static double run(const char* what, int size, int count) {
  const double before = computed();
  if (strcmp(what, "send") == 0)
    messages(size, count);
  else if (rank == 0)
    one_sided(strcmp(what, "get") == 0, size, count);
  const double after = computed();
  MPI_Barrier(MPI_COMM_WORLD);
  return after - before;
}

static void check_once(const char* what, int size) {
  const int get = strcmp(what, "get") == 0, send = strcmp(what, "send") == 0;
  fill(local, 2 * (size_t)size, rank);
  fill(window_memory, (size_t)size, 2 + rank);
  MPI_Barrier(MPI_COMM_WORLD);
  (void)run(what, size, 3);
  if (get && rank == 0) check(local, (size_t)size, 3);
  if (!get && !send && rank == 1) check(window_memory, (size_t)size, 0);
  if (send && rank == 1) check(local, (size_t)size, 0);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fputs(
        "Usage: mpirun -np 2 rma put|get|send BYTES COUNT\nPrints MB/s, 1 MB = 1000000 bytes, and the same by\n"
        "the processor time of rank 0 alone.\n",
        stderr);
    return 2;
  }
  const char* what = argv[1];
  const int size = atoi(argv[2]), count = atoi(argv[3]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  local = malloc(2 * (size_t)size);
  window_memory = malloc((size_t)size);
  if (local == NULL || window_memory == NULL) fail("no memory");
  MPI_Win_create(window_memory, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_lock_all(0, window);
  check_once(what, size);
  (void)run(what, size, count / 10 + 1);
  const double start = MPI_Wtime();
  const double busy = run(what, size, count);
  const double seconds = MPI_Wtime() - start;
  if (rank == 0) printf("%.1f %.1f\n", (double)size * count / seconds / 1e6, (double)size * count / busy / 1e6);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  MPI_Finalize();
  free(local);
  free(window_memory);
  return 0;
}
