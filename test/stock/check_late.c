/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_late: the last rank comes to MPI_Finalize late, or never.
 *   check_late SECONDS   by so many seconds after the others
 *   check_late dies      it is killed where the others call MPI_Finalize
 * Before that all have exchanged messages. With Open MPI's async_mpi_finalize
 * the others do not wait for it.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size, sum;
  if (argc != 2) {
    fprintf(stderr, "usage: check_late SECONDS|dies\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  if (sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
  if (rank == size - 1) {
    if (strcmp(argv[1], "dies") == 0) raise(SIGKILL);
    sleep((unsigned)atoi(argv[1]));
  }
  MPI_Finalize();
  if (rank == 0) printf("rank 0 has come out of MPI_Finalize\n");
  return 0;
}
