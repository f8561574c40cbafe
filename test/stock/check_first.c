/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_first: rank 0 sends one message to rank 1, and nothing else is sent.
 * Prints "the first message has come".
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, word = 42;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) MPI_Send(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
  if (rank == 1) {
    word = 0;
    MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (word != 42) MPI_Abort(MPI_COMM_WORLD, 1);
    printf("check_first: the first message has come\n");
  }
  MPI_Finalize();
  return 0;
}
