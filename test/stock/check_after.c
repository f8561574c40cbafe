/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_after FILE: an even number of processes. Each speaks with the one beside it and
 * then, as soon as there is the file, with all, for the first time with most of them:
 * with short and with long messages, whose contents are looked at.
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { rounds = 200, most = 20000, few = 3 };

static int sent[most], got[most];

int main(int argc, char** argv) {
  int rank, size, wrong = 0, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 || size % 2 != 0) {
    fprintf(stderr, "usage: mpirun -np 4 check_after FILE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Sendrecv(sent, 1, MPI_INT, rank ^ 1, 1, got, 1, MPI_INT, rank ^ 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 0) puts("check_after: each has spoken with one");
  fflush(stdout);
  while (access(argv[1], F_OK) != 0) usleep(10000);
  for (int round = 0; round < rounds; round++)
    for (int i = 1; i < size; i++) {
      const int to = (rank + i) % size, from = (rank + size - i) % size, count = round % 10 == 0 ? most : few;
      for (int k = 0; k < count; k++) sent[k] = rank * rounds + round;
      MPI_Sendrecv(sent, count, MPI_INT, to, 2, got, count, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int k = 0; k < count; k++) wrong += got[k] != from * rounds + round;
    }
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && sum == 0) puts("check_after: all messages are as they were sent");
  MPI_Finalize();
  return sum != 0;
}
