// SPDX-License-Identifier: BSD-3-Clause
//
// check_bursts FILE: what MPI says is sent arrives, though its sender calls MPI no more. Rank 0 sends small messages, in different
// ways, and then sleeps until rank 1, which has received all of them, makes FILE. Prints "every burst has arrived".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kMessages = 200, kWays = 5 };

static void send_all(int way, const int* data, MPI_Comm comm) {
  MPI_Request requests[kMessages];
  int done = 0;
  if (way == 4) MPI_Ssend(&data[0], 1, MPI_INT, 1, 0, comm);
  for (int i = way == 4 ? 1 : 0; i < kMessages; i++) {
    if (way == 0)
      MPI_Send(&data[i], 1, MPI_INT, 1, i, comm);
    else
      MPI_Isend(&data[i], 1, MPI_INT, 1, i, comm, &requests[i]);
    if (way == 3 && i % 7 == 0) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  }
  if (way == 1) MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE);
  while (way == 2 && !done) MPI_Testall(kMessages, requests, &done, MPI_STATUSES_IGNORE);
  for (int i = way == 4 ? 1 : 0; way >= 3 && i < kMessages; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  int rank, data[kMessages];
  char name[1000];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  alarm(30);
  for (int way = 0; way < kWays; way++) {
    snprintf(name, sizeof name, "%s.%d", argc > 1 ? argv[1] : "over", way);
    for (int i = 0; i < kMessages; i++) data[i] = rank == 0 ? way * kMessages + i : -1;
    if (rank == 0) {
      send_all(way, data, MPI_COMM_WORLD);
      while (access(name, F_OK) != 0) usleep(1000);
      unlink(name);
    } else if (rank == 1) {
      for (int i = 0; i < kMessages; i++) {
        MPI_Recv(&data[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (data[i] != way * kMessages + i) MPI_Abort(MPI_COMM_WORLD, 2);
      }
      FILE* file = fopen(name, "w");
      if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
      fclose(file);
    }
  }
  if (rank == 0) puts("every burst has arrived");
  MPI_Finalize();
  return 0;
}
