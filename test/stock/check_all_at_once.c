// SPDX-License-Identifier: BSD-3-Clause
//
// Every process sends so many messages to every other one, all at once, and then receives what it is sent, the last one's first:
//   mpirun -np N check_all_at_once MESSAGES BYTES
// With fewer queue pairs than peers, and fewer buffers than messages, all must arrive all the same.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { tag = 7 };

static unsigned char byte_of(int from, int to, int message, int at) {
  return (unsigned char)(from * 31 + to * 17 + message % 16 * 7 + at);
}

int main(int argc, char** argv) {
  int rank, size, count = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  const int messages = atoi(argv[1]), bytes = atoi(argv[2]);
  unsigned char* sent = malloc((size_t)size * 16 * (size_t)bytes);
  unsigned char* got = malloc((size_t)bytes);
  MPI_Request* requests = malloc((size_t)size * (size_t)messages * sizeof *requests);
  for (int next = 1; next < size; next++) {
    const int to = (rank + next) % size;
    for (int message = 0; message < messages; message++) {
      unsigned char* const one = sent + ((size_t)to * 16 + (size_t)message % 16) * (size_t)bytes;
      for (int i = 0; message < 16 && i < bytes; i++) one[i] = byte_of(rank, to, message, i);
      MPI_Isend(one, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[count++]);
    }
  }
  for (int next = 1; next < size; next++) {
    const int from = (rank + size - next) % size;
    for (int message = 0; message < messages; message++) {
      MPI_Recv(got, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int i = 0; i < bytes; i++) {
        if (got[i] != byte_of(from, rank, message, i)) {
          fprintf(stderr, "check_all_at_once: rank %d: message %d of %d is wrong\n", rank, message, from);
          MPI_Abort(MPI_COMM_WORLD, 1);
        }
      }
    }
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) puts("all messages are right");
  free(requests);
  free(got);
  free(sent);
  MPI_Finalize();
  return 0;
}
