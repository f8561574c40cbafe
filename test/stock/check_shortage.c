// SPDX-License-Identifier: BSD-3-Clause
//
// check_shortage [SECONDS|without]: rank 0 takes all file descriptors that its process may have, and then wants to send to rank 1,
// which it has not spoken to yet. It gives them back after SECONDS, when no answer may have come yet, or when one has come, or
// never. Prints "the message has gone, after descriptors were back" or "the message has gone without descriptors".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int answered(void) {
  int flag;
  MPI_Iprobe(1, 6, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  return flag;
}

int main(int argc, char** argv) {
  int rank, value = 7;
  const int without = argc > 1 && strcmp(argv[1], "without") == 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    MPI_Request request;
    take_all();
    MPI_Isend(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &request);
    double start = MPI_Wtime();
    while (without || argc < 2 || MPI_Wtime() - start < atof(argv[1]))
      if (answered()) break;
    const int early = answered();
    give_back();
    if (early != without) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (value == 8)
      printf("the message has gone%s\n", without ? " without descriptors" : ", after descriptors were back");
  } else if (rank == 1) {
    MPI_Recv(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    value++;
    MPI_Send(&value, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
