// SPDX-License-Identifier: BSD-3-Clause
//
// What messages cost their sender that the receiver does not take yet:
//   flood COUNT SIZE
// Rank 0 begins COUNT sends of SIZE bytes to rank 1, which does not call MPI meanwhile; then rank 1 receives them all. Prints
//   BYTES SECONDS
// BYTES: what each send that is under way has added to the sender's memory (Pss); SECONDS: from the first send to the end of the
// last one. Both processes must be on one host.
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int rank;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "flood: %s (rank %d)\n", what, rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// Memory of this process in bytes, where a page that several share counts in parts.
static double memory(void) {
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  double kilobytes = -1;
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Pss: %lf", &kilobytes) == 1) break;
  if (file != NULL) fclose(file);
  if (kilobytes < 0) fail("cannot read /proc/self/smaps_rollup");
  return kilobytes * 1024;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int processes;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const int count = argc == 3 ? atoi(argv[1]) : 0;
  const int size = argc == 3 ? atoi(argv[2]) : -1;
  if (processes != 2 || count <= 0 || size < 4) fail("usage: mpirun -np 2 flood COUNT SIZE");

  // The sender raises the flag in memory that both share, so that the receiver needs no MPI to wait for it.
  int owner = getpid();
  MPI_Bcast(&owner, 1, MPI_INT, 0, MPI_COMM_WORLD);
  char name[64];
  snprintf(name, sizeof name, "/btl_fabric_flood.%d", owner);
  const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(atomic_int)) != 0) fail("no shared memory");
  atomic_int* const flag = mmap(NULL, sizeof *flag, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (flag == MAP_FAILED) fail("no shared memory");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) shm_unlink(name);

  char* const data = malloc((size_t)size);
  MPI_Request* const requests = malloc((size_t)count * sizeof *requests);
  if (data == NULL || requests == NULL) fail("no memory");
  memset(data, 1, (size_t)size);
  memset(requests, 0, (size_t)count * sizeof *requests);
  for (int i = 0; i < 100; ++i)  // so that the connection and its queues are there
    if (rank == 0) {
      MPI_Send(data, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(data, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(data, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(data, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
  MPI_Barrier(MPI_COMM_WORLD);

  if (rank == 0) {
    const double before = memory();
    const double start = MPI_Wtime();
    for (int i = 0; i < count; ++i) MPI_Isend(data, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
    const double sent = MPI_Wtime();
    const double more = memory() - before;
    const double asked = MPI_Wtime();
    atomic_store(flag, 1);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    printf("%.0f %.6f\n", more / count, MPI_Wtime() - asked + (sent - start));
  } else {
    while (atomic_load(flag) == 0) sched_yield();
    for (int i = 0; i < count; ++i) MPI_Recv(data, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  free(requests);
  free(data);
  MPI_Finalize();
}
