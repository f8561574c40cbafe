/* SPDX-License-Identifier: BSD-3-Clause */
/* For selftest: each rank sends a block to the next one round the ring, and all add up their ranks. */
#include <mpi.h>
#include <stdio.h>

static int block[100000];

int main(int argc, char** argv) {
  int rank, size, sum, wrong = 0, length;
  char host[MPI_MAX_PROCESSOR_NAME];

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  const int from = (rank + size - 1) % size, to = (rank + 1) % size, count = sizeof block / sizeof *block;
  for (int i = 0; i < count; i++) block[i] = rank + i;
  MPI_Sendrecv_replace(block, count, MPI_INT, to, 0, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < count; i++) wrong += block[i] != from + i;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong += sum != size * (size - 1) / 2;
  printf("rank %d of %d on %s: %s\n", rank, size, host, wrong ? "wrong" : "right");
  MPI_Finalize();
  return wrong != 0;
}
