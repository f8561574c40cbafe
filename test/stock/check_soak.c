/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_soak SECONDS [KIB]: every process sends to every other one, for so long,
 * messages of up to KIB KiB (64), several at once. Each byte of a message depends
 * on who sent it, to whom, and the how manieth it is: one that is lost, doubled,
 * changed or out of order is found. At the end the memory of a process must be
 * what it was after a third of the time, or nearly so.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { window = 8, tag = 7, most_told = 5, slack_kib = 4096 };

static int rank, size;
static long wrong;

static uint64_t mix(uint64_t value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15u;
  return value ^ value >> 29;
}

/* One after the other: those of a number are the same on both sides. */
static uint64_t number_of(int from, int to, long serial) {
  return mix(mix((uint64_t)from * 65536 + (uint64_t)to) + (uint64_t)serial);
}

/* Most are small, some are as large as may be. */
static size_t length_of(uint64_t number, size_t most) {
  switch (number % 8) {
    case 0:
      return number / 8 % (most + 1);
    case 1:
    case 2:
      return number / 8 % 4000;
    default:
      return number / 8 % 65;
  }
}

static void fill(unsigned char* to, size_t length, uint64_t number) {
  for (size_t i = 0; i < length; i++) to[i] = (unsigned char)(number >> (i % 8 * 8)) + (unsigned char)(i / 8);
}

static void check(const unsigned char* got, const MPI_Status* status, int from, long serial, size_t most) {
  const uint64_t number = number_of(from, rank, serial);
  const size_t length = length_of(number, most);
  int count;
  size_t i = 0;
  MPI_Get_count(status, MPI_BYTE, &count);
  if ((size_t)count == length)
    while (i < length && got[i] == (unsigned char)((unsigned char)(number >> (i % 8 * 8)) + (unsigned char)(i / 8)))
      i++;
  if (((size_t)count != length || i < length) && wrong++ < most_told)
    printf("check_soak: message %ld from rank %d to rank %d, of %zu bytes, is wrong: %d bytes, byte %zu\n", serial,
           from, rank, length, count, i);
}

/* Its own: what a userspace device shares among all processes fills as it is used. */
static long memory_kib(void) {
  char line[256];
  long kib = 0;
  FILE* const file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "RssAnon: %ld", &kib) == 1) break;
  if (file != NULL) fclose(file);
  return kib;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 2 || size < 2) {
    fprintf(stderr, "usage: mpirun -np 2 check_soak SECONDS [KIB]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const double seconds = atof(argv[1]);
  const size_t most = argc > 2 ? (size_t)atol(argv[2]) << 10 : 65536;
  const int all = window * size;
  unsigned char* const to_send = malloc((size_t)all * (most + 1));
  unsigned char* const got = malloc((size_t)all * (most + 1));
  MPI_Request* const requests = malloc(sizeof(MPI_Request) * 2 * (size_t)all);
  MPI_Status* const statuses = malloc(sizeof(MPI_Status) * 2 * (size_t)all);
  if (to_send == NULL || got == NULL || requests == NULL || statuses == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  memset(to_send, 0, (size_t)all * (most + 1));
  memset(got, 0, (size_t)all * (most + 1));
  const double start = MPI_Wtime();
  long round = 0, early_kib = 0, sums[2] = {0, 0}, mine[2];
  for (int goes_on = 1; goes_on; round++) {
    int count = 0;
    for (int peer = 0; peer < size; peer++)
      for (int i = 0; peer != rank && i < window; i++)
        MPI_Irecv(got + (size_t)(peer * window + i) * (most + 1), (int)most, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                  &requests[count++]);
    for (int i = 0; i < window; i++) {
      for (int peer = 0; peer < size; peer++) {
        if (peer == rank) continue;
        unsigned char* const message = to_send + (size_t)(peer * window + i) * (most + 1);
        const uint64_t number = number_of(rank, peer, round * window + i);
        fill(message, length_of(number, most), number);
        MPI_Isend(message, (int)length_of(number, most), MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[count++]);
      }
    }
    MPI_Waitall(count, requests, statuses);
    count = 0;
    for (int peer = 0; peer < size; peer++)
      for (int i = 0; peer != rank && i < window; i++)
        check(got + (size_t)(peer * window + i) * (most + 1), &statuses[count++], peer, round * window + i, most);
    if (round == 0 && rank == 0) {
      puts("check_soak: each has spoken with each");
      fflush(stdout);
    }
    if (round % 16 == 0) {
      const double gone = MPI_Wtime() - start;
      if (early_kib == 0 && gone > seconds / 3) early_kib = memory_kib();
      goes_on = gone < seconds || early_kib == 0;
      MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (!goes_on && early_kib == 0) early_kib = memory_kib();
    }
  }
  const long grown = memory_kib() - early_kib;
  if (grown > slack_kib) {
    printf("check_soak: rank %d has %ld KiB more memory than after a third of the time, when it had %ld\n", rank, grown,
           early_kib);
    wrong++;
  }
  mine[0] = wrong;
  mine[1] = round * window * (size - 1);
  MPI_Allreduce(mine, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && sums[0] == 0) printf("check_soak: %ld messages are as they were sent\n", sums[1]);
  free(to_send);
  free(got);
  free(requests);
  free(statuses);
  MPI_Finalize();
  return sums[0] != 0;
}
