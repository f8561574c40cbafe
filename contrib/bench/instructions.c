// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/bench/instructions counts: two processes, and messages of 8 bytes from the first to the second, in windows.
// Run by it under callgrind:
//   mpirun -np 2 valgrind --tool=callgrind instructions FIFO FIFO WINDOWS
// The processes take turns by the two FIFOs, where they sleep: neither ever waits in MPI, so nothing is counted that the
// scheduler decides. Each writes a profile of what it does WINDOWS times: of rank 0 the first is of sending and the second
// of progress without anything to do (1000 times), of rank 1 the first is of receiving.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum { kWindow = 32, kWarmUp = 64, kIdle = 1000 };

static int rank, mine, others;  // FIFOs

static void fail(const char* what) {
  fprintf(stderr, "instructions: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void wait_for_other(void) {
  char one;
  if (read(mine, &one, 1) != 1) fail("the other process is gone");
}

static void go_on(void) {
  if (write(others, "", 1) != 1) fail("the other process is gone");
}

static void progress(void) {
  int flag;
  MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

static void send_window(char (*messages)[8]) {
  MPI_Request requests[kWindow];
  wait_for_other();
  for (int i = 0; i < kWindow; ++i) MPI_Isend(messages[i], 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[i]);
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
  go_on();
  progress();  // completions, credits
}

static void receive_window(char (*messages)[8]) {
  MPI_Request requests[kWindow];
  for (int i = 0; i < kWindow; ++i) MPI_Irecv(messages[i], 8, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[i]);
  go_on();
  wait_for_other();
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char** argv) {
  char messages[kWindow][8] = {"counted"};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 4) fail("usage: mpirun -np 2 instructions FIFO FIFO WINDOWS");
  mine = open(argv[1 + rank], O_RDWR);  // so that neither end waits for the other
  others = open(argv[2 - rank], O_RDWR);
  if (mine < 0 || others < 0) fail("a FIFO cannot be opened");
  const int windows = atoi(argv[3]);
  MPI_Barrier(MPI_COMM_WORLD);  // connects: after it nothing needs progress while its process sleeps
  for (int i = 0; i < kWarmUp + windows; ++i) {
    if (i == kWarmUp) CALLGRIND_ZERO_STATS;
    rank == 0 ? send_window(messages) : receive_window(messages);
  }
  CALLGRIND_DUMP_STATS;
  if (rank == 0) {
    wait_for_other();  // for all that was sent
    for (int i = 0; i < kWarmUp; ++i) progress();
    CALLGRIND_ZERO_STATS;
    for (int i = 0; i < kIdle; ++i) progress();
    CALLGRIND_DUMP_STATS;
  } else {
    go_on();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
