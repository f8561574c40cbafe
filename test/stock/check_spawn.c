/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_spawn N [sending]: a process spawns N others, exchanges a message with
 * each of them both ways, and disconnects. Prints "N children".
 *
 * With "sending" the first child sends to the second meanwhile, by a message
 * that takes many calls of MPI on its side, and waits for its end afterwards;
 * the second has it before it disconnects.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 5000, PIECES = 1 << 20 };

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

/* Every second word: its sender packs it. */
static int scattered[2 * PIECES];

static MPI_Request begin_to_send(void) {
  MPI_Datatype every_second;
  MPI_Request request = MPI_REQUEST_NULL;
  int rank;
  MPI_Type_vector(PIECES, 1, 2, MPI_INT, &every_second);
  MPI_Type_commit(&every_second);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; rank == 0 && i < PIECES; i++) scattered[2 * i] = i + 1;
  if (rank == 0) MPI_Isend(scattered, 1, every_second, 1, 2, MPI_COMM_WORLD, &request);
  if (rank == 1) MPI_Recv(scattered, 1, every_second, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; rank < 2 && i < PIECES; i++)
    if (scattered[2 * i] != i + 1) {
      fprintf(stderr, "check_spawn: word %d is %d\n", i, scattered[2 * i]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  MPI_Type_free(&every_second);
  return request;
}

int main(int argc, char** argv) {
  MPI_Comm other;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&other);
  if (other != MPI_COMM_NULL) {
    exchange(other, 0);
    if (argc > 2) request = begin_to_send();
  } else {
    int children = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Comm_spawn(argv[0], argv + 1, children, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, MPI_ERRCODES_IGNORE);
    for (int child = 0; child < children; child++) exchange(other, child);
    printf("check_spawn: %d children\n", children);
  }
  MPI_Comm_disconnect(&other);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
