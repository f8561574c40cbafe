/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_ulfm: the last rank dies in the middle of a ring of messages; the
 * others get the error that MPI has for that, and go on without it. Wants
 * mpirun --with-ft ulfm, Open MPI 5.0.
 */
#include <mpi.h>
/* Its headers want those of mpi.h first. */
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char** argv) {
  int rank, size, left, one = 1, sum = 0;
  MPI_Comm survivors;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
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
