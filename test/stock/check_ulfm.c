/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_ulfm [sends | receive]: the last rank dies; the others get the error that MPI has for that, and go on without it. It dies in the
 * middle of a ring of messages, with `sends` when rank 0 has many for it that wait for the connection, and with `receive` while rank 0
 * reads a large one. Wants mpirun --with-ft ulfm, Open MPI 5.0.
 */
#include <mpi.h>
/* Its headers want those of mpi.h first. */
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { rounds = 300, longest = 200000 };
static const int lengths[] = {8, 5000, longest};
static char out[longest], in[longest];

static void fail(const char* what) {
  fprintf(stderr, "check_ulfm: %s\n", what);
  fflush(stderr);
  _Exit(1);
}

/* Everybody sends to the next rank and receives from the one before. The
 * victim dies halfway. Returns the class of the first error. */
static int ring(MPI_Comm comm, int victim) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int i = 0; i < rounds; i++) {
    const int length = lengths[i % 3];
    if (rank == victim && i == rounds / 2) raise(SIGKILL);
    memset(out, i + rank, (size_t)length);
    int error = MPI_Sendrecv(out, length, MPI_CHAR, next, 1, in, length, MPI_CHAR, before, 1, comm, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS) {
      MPI_Error_class(error, &error);
      return error;
    }
    for (int k = 0; k < length; k++)
      if (in[k] != (char)(i + before)) fail("wrong data");
  }
  return MPI_SUCCESS;
}

/* Both ends of all messages between ranks 0 and 1 that come after what was under way with the victim. */
static void exchange(int rank) {
  enum { count = 400 };
  for (int i = 0; i < count; i++) {
    const int length = i % 2 == 0 ? 1000 : longest;
    memset(out, i, (size_t)length);
    const int error = rank == 0 ? MPI_Recv(in, length, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
                                : MPI_Send(out, length, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    if (error != MPI_SUCCESS) fail("the survivors cannot talk to each other");
    if (rank == 0 && memcmp(in, out, (size_t)length) != 0) fail("wrong data of a survivor");
  }
}

/* The victim is gone before it is connected. Whoever waits for one of these messages is told, and no buffer is kept. */
static void end_sends(int rank, int victim) {
  enum { count = 300, size = 100 };
  static char message[size], memory[count * (size + MPI_BSEND_OVERHEAD)];
  if (rank == victim) {
    usleep(300000);
    raise(SIGKILL);
  }
  if (rank == 0) {
    MPI_Request requests[count];
    void* detached;
    int bytes;
    MPI_Buffer_attach(memory, sizeof memory);
    for (int i = 0; i < count; i++) {
      MPI_Isend(message, size, MPI_CHAR, victim, 1, MPI_COMM_WORLD, &requests[i]);
      MPI_Bsend(message, size, MPI_CHAR, victim, 1, MPI_COMM_WORLD);
    }
    for (int i = 0; i < count; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&detached, &bytes);
    if (detached != memory || bytes != sizeof memory) fail("another buffer came back");
  }
  if (rank < 2) exchange(rank);
}

/* The message is one that the receiver reads from the victim's memory. */
static void end_receive(int rank, int victim) {
  enum { size = 64 << 20 };
  if (rank == 0 || rank == victim) {
    char* const message = calloc(1, size);
    MPI_Request request;
    if (message == NULL) fail("no memory");
    if (rank == victim) {
      MPI_Isend(message, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
      usleep(10000);
      raise(SIGKILL);
    }
    MPI_Recv(message, size, MPI_CHAR, victim, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(message);
  }
  if (rank < 2) exchange(rank);
}

int main(int argc, char** argv) {
  int rank, size, left, one = 1, sum = 0;
  MPI_Comm survivors;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const char* const what = argc > 1 ? argv[1] : "ring";
  if (strcmp(what, "ring") != 0) {
    strcmp(what, "sends") == 0 ? end_sends(rank, size - 1) : end_receive(rank, size - 1);
    if (rank == 0) printf("what waited has ended\n");
    fflush(stdout);
    sleep(1);
    raise(SIGKILL);
  }
  const int error = ring(MPI_COMM_WORLD, size - 1);
  if (error != MPIX_ERR_PROC_FAILED && error != MPIX_ERR_REVOKED)
    fail("another error than that of a process that failed");
  MPIX_Comm_revoke(MPI_COMM_WORLD);
  if (MPIX_Comm_shrink(MPI_COMM_WORLD, &survivors) != MPI_SUCCESS) fail("MPIX_Comm_shrink");
  MPI_Comm_size(survivors, &left);
  if (left != size - 1) {
    fprintf(stderr, "check_ulfm: rank %d: %d of %d survivors\n", rank, left, size - 1);
    fail("others are taken for failed");
  }
  const int later = ring(survivors, -1);
  if (later != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING];
    MPI_Error_string(later, text, &left);
    fprintf(stderr, "check_ulfm: rank %d: %s\n", rank, text);
    fail("the survivors cannot go on");
  }
  if (MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, survivors) != MPI_SUCCESS || sum != left)
    fail("MPI_Allreduce of the survivors");
  if (rank == 0) printf("%d survivors went on\n", left);
  fflush(stdout);
  /* MPI_Finalize of Open MPI 5.0.7 hangs after a failure, one time in three, with any BTL. */
  MPI_Barrier(survivors);
  raise(SIGKILL);
  return 0;
}
