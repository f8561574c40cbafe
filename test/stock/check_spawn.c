/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_spawn N: a process spawns N others, exchanges a message with each of
 * them both ways, and disconnects. Prints "N children".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 5000 };

static void exchange(MPI_Comm comm, int peer) {
  static int out[WORDS], in[WORDS];
  for (int i = 0; i < WORDS; i++) out[i] = 7 * i + 1;
  MPI_Sendrecv(out, WORDS, MPI_INT, peer, 1, in, WORDS, MPI_INT, peer, 1, comm, MPI_STATUS_IGNORE);
  for (int i = 0; i < WORDS; i++)
    if (in[i] != out[i]) {
      fprintf(stderr, "check_spawn: a message has other contents\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char** argv) {
  MPI_Comm other;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&other);
  if (other != MPI_COMM_NULL) {
    exchange(other, 0);
  } else {
    int children = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, children, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, MPI_ERRCODES_IGNORE);
    for (int child = 0; child < children; child++) exchange(other, child);
    printf("check_spawn: %d children\n", children);
  }
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
