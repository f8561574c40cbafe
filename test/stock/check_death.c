/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_death: rank 1 dies, and rank 0 then sends to it until it is told.
 *   check_death before   it dies before anybody has spoken to it
 *   check_death after    it dies after messages both ways: connected, clear
 *                        to send, and nothing under way
 *   check_death leaves   the same, but it ends in an orderly way as far as
 *                        the kernel is concerned, without MPI_Finalize
 *   check_death waits    the same as after, but rank 0 only waits for a message
 *                        from it first, for two seconds, and then sends
 *   check_death listens  the same as after, but rank 0 only waits for a message
 *                        from it, and sends nothing
 * Wants mpirun --enable-recovery, or mpirun ends the job before rank 0 hears of
 * it, and at least 2 processes; the others wait. What tells rank 0 is its
 * transport, which ends the job: if that takes more than a minute, this prints
 * so.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  static char message[4096];
  int rank;
  const char* when = argc > 1 ? argv[1] : "before";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (strcmp(when, "before") != 0 && rank < 2) {
    for (int i = 0; i < 10; i++)
      MPI_Sendrecv(message, 64, MPI_BYTE, 1 - rank, 1, message + 64, 64, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
  }
  if (rank == 1) {
    usleep(300000);
    if (strcmp(when, "leaves") == 0) _exit(0);
    raise(SIGKILL);
  }
  double start = MPI_Wtime();
  if (rank == 0) sleep(1);
  if (rank == 0 && (strcmp(when, "waits") == 0 || strcmp(when, "listens") == 0)) {
    MPI_Request request;
    int done = 0;
    const double most = strcmp(when, "waits") == 0 ? 3 : 60;
    MPI_Irecv(message, 64, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
    while (!done && MPI_Wtime() - start < most) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  while (rank == 0 && MPI_Wtime() - start < 60) {
    MPI_Send(message, 64, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    usleep(1000);
  }
  if (rank != 0) sleep(70);
  printf("check_death: rank %d was not told within a minute\n", rank);
  fflush(stdout);
  _exit(3);
}
