/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * onesided put|get BYTES SECONDS: two processes, which must be on different
 * (or pretended) hosts, as memory of the same host is copied. Rank 0 has 16
 * operations of BYTES under way into the window of rank 1, again and again.
 * Prints MB/s of 1000000 bytes; afterwards the last byte of each is checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int put = argc == 4 && strcmp(argv[1], "put") == 0, get = argc == 4 && strcmp(argv[1], "get") == 0;
  if (size != 2 || !(put || get) || atoi(argv[2]) < 1) {
    if (rank == 0) fprintf(stderr, "usage: mpirun -np 2 ... onesided put|get BYTES SECONDS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  size_t bytes = (size_t)atoi(argv[2]);
  double seconds = atof(argv[3]);
  unsigned char *local, *remote;
  MPI_Win win;
  MPI_Alloc_mem((MPI_Aint)(bytes * WINDOW), MPI_INFO_NULL, &local);
  MPI_Win_allocate((MPI_Aint)(bytes * WINDOW), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &remote, &win);
  memset(local, rank == 0 && put ? 0x5a : 0, bytes * WINDOW);
  memset(remote, rank == 1 && get ? 0x5a : 0, bytes * WINDOW);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, win);
  if (rank == 0) {
    long done = -1; /* the first round connects and registers */
    double start = 0, now;
    do {
      for (int i = 0; i < WINDOW; i++) {
        if (put)
          MPI_Put(local + bytes * (size_t)i, (int)bytes, MPI_BYTE, 1, (MPI_Aint)(bytes * (size_t)i), (int)bytes,
                  MPI_BYTE, win);
        else
          MPI_Get(local + bytes * (size_t)i, (int)bytes, MPI_BYTE, 1, (MPI_Aint)(bytes * (size_t)i), (int)bytes,
                  MPI_BYTE, win);
      }
      MPI_Win_flush(1, win);
      now = MPI_Wtime();
      if (++done == 0) start = now;
    } while (done == 0 || now - start < seconds);
    printf("%s %zu bytes: %.2f MB/s\n", argv[1], bytes, (double)done * WINDOW * (double)bytes / 1e6 / (now - start));
    fflush(stdout);
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  const unsigned char* where = put ? remote : local;
  if (rank == (put ? 1 : 0))
    for (size_t i = 0; i < WINDOW; i++)
      if (where[bytes * (i + 1) - 1] != 0x5a) {
        fprintf(stderr, "onesided: operation %zu did not arrive\n", i);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  MPI_Win_free(&win);
  MPI_Free_mem(local);
  MPI_Finalize();
  return 0;
}
