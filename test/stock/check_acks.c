/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_acks: three processes. The first has sent many messages to the second, which computes, when the third sends it one that
 * has to be acknowledged, though the first may have no buffer left for that; and a large one. Each plays each part. Ends
 * when all messages are there.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { most = 3000, longs = 8, large = 50000, computing_us = 1000000, sending_us = 300000 };

static long few[most][longs];
static MPI_Request sends[most];
static long big[large];

static int wrong_of(const long* got, int count, long expected) {
  int wrong = 0;
  for (int i = 0; i < count; i++) wrong += got[i] != expected;
  return wrong;
}

/* Whose buffers are out, while `third` wants an answer. */
static int sender(int busy, int third) {
  MPI_Request request[2];
  static long got[longs];
  memset(big, 0, sizeof big);
  MPI_Irecv(got, longs, MPI_LONG, third, 1, MPI_COMM_WORLD, &request[0]);
  MPI_Irecv(big, large, MPI_LONG, third, 2, MPI_COMM_WORLD, &request[1]);
  for (int i = 0; i < most; i++) {
    for (int k = 0; k < longs; k++) few[i][k] = i;
    MPI_Isend(few[i], longs, MPI_LONG, busy, 3, MPI_COMM_WORLD, &sends[i]);
  }
  MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
  MPI_Waitall(most, sends, MPI_STATUSES_IGNORE);
  return wrong_of(got, longs, 7) + wrong_of(big, large, 8);
}

static int computes(int from) {
  int wrong = 0;
  usleep(computing_us);
  for (int i = 0; i < most; i++) {
    MPI_Recv(few[i], longs, MPI_LONG, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += wrong_of(few[i], longs, i);
  }
  return wrong;
}

static int wants_answer(int from) {
  static long message[longs];
  usleep(sending_us);
  for (int k = 0; k < longs; k++) message[k] = 7;
  for (int k = 0; k < large; k++) big[k] = 8;
  MPI_Ssend(message, longs, MPI_LONG, from, 1, MPI_COMM_WORLD);
  MPI_Send(big, large, MPI_LONG, from, 2, MPI_COMM_WORLD);
  return 0;
}

int main(int argc, char** argv) {
  int rank, size, wrong = 0, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 3) {
    fprintf(stderr, "usage: mpirun -np 3 check_acks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int first = 0; first < 3; first++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const int role = (rank + 3 - first) % 3;
    wrong += role == 0 ? sender((first + 1) % 3, (first + 2) % 3) : role == 1 ? computes(first) : wants_answer(first);
  }
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && sum == 0) puts("check_acks: all messages are as they were sent");
  MPI_Finalize();
  return sum != 0;
}
