// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes that hang, each in its own way, for contrib/fabric_hang to say why:
//   check_hang receive    rank 1 waits for a message that nobody sends: it has another tag
//   check_hang computes   rank 1 computes for ever, while rank 0 sends to it
//   check_hang stream     rank 0 sends, rank 1 only receives, for ever
//   check_hang talks      both send and receive for ever: nothing hangs by itself
//   check_hang checks     the same, and what comes is looked at: "wrong" is said of what is not what was sent
// Whoever runs it ends it.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { kWarm = 3, kBytes = 64 };

static void talk(int rank, int rounds) {
  char out[kBytes] = {0};
  char in[kBytes];
  for (int i = 0; i < rounds || rounds < 0; ++i) {
    MPI_Sendrecv(out, kBytes, MPI_CHAR, !rank, 1, in, kBytes, MPI_CHAR, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void check(int rank) {
  enum { kMost = 30000 };
  static unsigned char out[kMost];
  static unsigned char in[kMost];
  for (unsigned round = 0;; ++round) {
    const int size = 1 + (int)(round * 7919U % kMost);
    memset(out, (int)(round + (unsigned)rank), (size_t)size);
    MPI_Sendrecv(out, size, MPI_BYTE, !rank, 5, in, size, MPI_BYTE, !rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; ++i) {
      if (in[i] != (unsigned char)(round + (unsigned)!rank)) {
        printf("check_hang: byte %d of round %u is wrong\n", i, round);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
}

static void stream(int rank, int bytes) {
  static char data[1 << 16];
  for (;;) {
    if (rank == 0) {
      MPI_Send(data, bytes, MPI_CHAR, 1, 4, MPI_COMM_WORLD);
    } else {
      MPI_Recv(data, bytes, MPI_CHAR, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* way = argc > 1 ? argv[1] : "";
  char buffer[kBytes] = {0};
  talk(rank, kWarm);
  if (rank == 0) {
    printf("check_hang: %s begins\n", way);
    fflush(stdout);
  }
  if (strcmp(way, "receive") == 0) {
    if (rank == 0) {
      MPI_Send(buffer, kBytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
      MPI_Recv(buffer, kBytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buffer, kBytes, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  } else if (strcmp(way, "computes") == 0) {
    if (rank == 0) {
      stream(rank, 4096);
    }
    for (volatile unsigned long sum = 0;; ++sum) {
    }
  } else if (strcmp(way, "stream") == 0) {
    stream(rank, kBytes);
  } else if (strcmp(way, "checks") == 0) {
    check(rank);
  } else if (strcmp(way, "talks") == 0) {
    talk(rank, -1);
  }
  MPI_Finalize();
  return 0;
}
