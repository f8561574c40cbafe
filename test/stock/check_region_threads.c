// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that exchange large messages with the other process, from and into other memory each time, some of it new: registered
// memory is looked for, made room for, and released at the same time. Prints "every thread has its messages".
//   mpirun -np 2 check_region_threads ROUNDS
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kThreads = 4, kAtOnce = 8, kMost = 3000000, kOffsets = 63 };

struct thread {
  pthread_t id;
  MPI_Comm comm;
  int number;
};

static int rank, rounds;
static atomic_int bad;

static unsigned next(unsigned* state) {
  return *state = *state * 1103515245u + 12345u, *state >> 8;
}

static void fill(unsigned char* at, int length, unsigned seed) {
  for (int i = 0; i < length; i++) at[i] = (unsigned char)(seed + (unsigned)i * 13u + ((unsigned)i >> 8));
}

static int is_filled(const unsigned char* at, int length, unsigned seed) {
  for (int i = 0; i < length; i++)
    if (at[i] != (unsigned char)(seed + (unsigned)i * 13u + ((unsigned)i >> 8))) return 0;
  return 1;
}

static void* exchange(void* argument) {
  struct thread* self = argument;
  unsigned lengths = 77u + (unsigned)self->number;  // the same in both processes
  unsigned own = lengths * 5u + (unsigned)rank;
  unsigned char *out[kAtOnce], *in[kAtOnce];
  for (int i = 0; i < kAtOnce; i++) out[i] = malloc(kMost + kOffsets), in[i] = malloc(kMost + kOffsets);
  for (int round = 0; round < rounds; round++) {
    MPI_Request requests[2 * kAtOnce];
    unsigned char* at[kAtOnce];
    int length[kAtOnce];
    for (int i = 0; i < kAtOnce; i++) {
      length[i] = 1 + (int)(next(&lengths) % kMost);
      if (next(&own) % 4 == 0) {
        free(in[i]);
        in[i] = malloc(kMost + kOffsets);
      }
      at[i] = in[i] + next(&own) % kOffsets;
      MPI_Irecv(at[i], length[i], MPI_BYTE, 1 - rank, i, self->comm, &requests[i]);
    }
    for (int i = 0; i < kAtOnce; i++) {
      unsigned char* from = out[i] + next(&own) % kOffsets;
      fill(from, length[i], (unsigned)(rank + round + i));
      MPI_Isend(from, length[i], MPI_BYTE, 1 - rank, i, self->comm, &requests[kAtOnce + i]);
    }
    MPI_Waitall(2 * kAtOnce, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kAtOnce; i++)
      if (!is_filled(at[i], length[i], (unsigned)(1 - rank + round + i))) bad = 1;
  }
  for (int i = 0; i < kAtOnce; i++) free(out[i]), free(in[i]);
  return NULL;
}

int main(int argc, char** argv) {
  struct thread threads[kThreads];
  int have, any, mine;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &have);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  rounds = argc == 2 ? atoi(argv[1]) : 0;
  if (have != MPI_THREAD_MULTIPLE || rounds < 1) {
    fputs("check_region_threads: it takes a number, and an MPI with threads\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int i = 0; i < kThreads; i++) {
    threads[i].number = i;
    MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
  }
  for (int i = 0; i < kThreads; i++) pthread_create(&threads[i].id, NULL, exchange, &threads[i]);
  for (int i = 0; i < kThreads; i++) pthread_join(threads[i].id, NULL);
  mine = bad;
  MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) puts(any ? "wrong: a message is not what was sent" : "every thread has its messages");
  for (int i = 0; i < kThreads; i++) MPI_Comm_free(&threads[i].comm);
  MPI_Finalize();
  return any;
}
