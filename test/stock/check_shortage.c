// SPDX-License-Identifier: BSD-3-Clause
//
// check_shortage [SECONDS]: rank 0 takes all file descriptors that its process may have, and then wants to send to rank 1,
// which it has not spoken to yet. It gives them back after SECONDS, and waits until the message has gone; or never. Prints
// "the message has gone, after descriptors were back".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 4096 };

static int taken[MOST], count;

static void take_all(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur > MOST) {
    limit.rlim_cur = MOST;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  while (count < MOST && (taken[count] = dup(0)) >= 0) count++;
}

static void give_back(void) {
  while (count > 0) close(taken[--count]);
}

int main(int argc, char** argv) {
  int rank, value = 7, done = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    MPI_Request request;
    take_all();
    MPI_Isend(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &request);
    double start = MPI_Wtime();
    int early = 0;
    while (argc < 2 || MPI_Wtime() - start < atof(argv[1])) MPI_Iprobe(1, 99, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
    MPI_Iprobe(1, 6, MPI_COMM_WORLD, &early, MPI_STATUS_IGNORE);
    if (early) MPI_Abort(MPI_COMM_WORLD, 2);  // so there were descriptors
    give_back();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (value == 8) puts("the message has gone, after descriptors were back");
  } else if (rank == 1) {
    MPI_Recv(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    value++;
    MPI_Send(&value, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
