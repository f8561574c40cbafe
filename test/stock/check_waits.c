/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_waits FOLDER: every process exchanges messages with all others, makes
 * the file FOLDER/ready.RANK, and stays inside MPI until somebody makes the
 * file FOLDER/go. Then they exchange messages again, but not with CHECK_WAITS_SILENT
 * in the environment. Meanwhile something may happen to their devices. Prints
 * "N processes have waited".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rank, size;

static void exchange(int round) {
  int out[2] = {rank, round}, *in = malloc((size_t)size * sizeof out);
  MPI_Allgather(out, 2, MPI_INT, in, 2, MPI_INT, MPI_COMM_WORLD);
  for (int peer = 0; peer < size; peer++) {
    int one[2] = {0, 0};
    MPI_Sendrecv(out, 2, MPI_INT, peer, round, one, 2, MPI_INT, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (in[2 * peer] != peer || in[2 * peer + 1] != round || one[0] != peer || one[1] != round) {
      fprintf(stderr, "check_waits: rank %d: a message has other contents\n", rank);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  free(in);
}

int main(int argc, char** argv) {
  char ready[4096], go[4096];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  snprintf(ready, sizeof ready, "%s/ready.%d", argv[1], rank);
  snprintf(go, sizeof go, "%s/go", argv[1]);
  exchange(1);
  FILE* file = fopen(ready, "w");
  if (file == NULL || fclose(file) != 0) MPI_Abort(MPI_COMM_WORLD, 3);
  for (int tries = 0; access(go, F_OK) != 0; tries++) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    usleep(1000);
    if (tries == 60000) MPI_Abort(MPI_COMM_WORLD, 4);
  }
  if (getenv("CHECK_WAITS_SILENT") == NULL) exchange(2);
  if (rank == 0) printf("check_waits: %d processes have waited\n", size);
  MPI_Finalize();
  return 0;
}
