// SPDX-License-Identifier: BSD-3-Clause
//
// What a large job can do in a short time: everybody says hello to rank 0, a message goes round twice, and all meet in barriers.
//   mpirun -np N check_ring
// Each process says so when it has come out of MPI_Finalize.
// Status 1 if a message is wrong.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static _Noreturn void fail(const char* what, int rank) {
  fprintf(stderr, "check_ring: rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

int main(int argc, char** argv) {
  enum { rounds = 2, tag = 3 };
  int rank, size, hello;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank > 0) MPI_Send(&rank, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
  for (int i = 1; rank == 0 && i < size; i++) {
    MPI_Status status;
    MPI_Recv(&hello, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
    if (hello != status.MPI_SOURCE) fail("a hello is wrong", rank);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < rounds; round++) {
    int token = round;
    if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (token != rank + round) fail("the token is wrong", rank);
    token++;
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, tag, MPI_COMM_WORLD);
    if (rank == 0) {
      MPI_Recv(&token, 1, MPI_INT, size - 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (token != size + round) fail("the token has lost its way", rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) printf("check_ring: %d processes have met\n", size);
  MPI_Finalize();
  printf("rank %d is out of MPI_Finalize\n", rank);
  return 0;
}
