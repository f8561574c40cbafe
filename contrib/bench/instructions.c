// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/bench/instructions counts: two processes, and messages of 8 bytes from the first to the second, in windows.
// Run by it under callgrind:
//   mpirun -np 2 valgrind --tool=callgrind instructions FIFO FIFO FILE WINDOWS : -np PEERS instructions FIFO FIFO FILE WINDOWS
// The processes take turns by the two FIFOs, where they sleep: neither ever waits in MPI, so nothing is counted that the
// scheduler decides. Each writes a profile of what it does WINDOWS times: of rank 0 the first is of sending and the second
// of progress without anything to do (1000 times), of rank 1 the first is of receiving. PEERS others have connections with
// both, and sleep until FILE is there.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum { kWindow = 32, kWarmUp = 64, kIdle = 1000 };

static int rank, size, mine, others;  // FIFOs

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

// Connects the two with each other and with everybody else.
static void connect_to(int peer) {
  char one = 0;
  MPI_Sendrecv_replace(&one, 1, MPI_CHAR, peer, 2, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void be_a_peer(const char* over) {
  for (int i = 0; i < 2; ++i) connect_to(i);
  while (access(over, F_OK) != 0) usleep(50000);
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

static void measure(char** argv) {
  char messages[kWindow][8] = {"counted"};
  const int windows = atoi(argv[4]);
  mine = open(argv[1 + rank], O_RDWR);  // so that neither end waits for the other
  others = open(argv[2 - rank], O_RDWR);
  if (mine < 0 || others < 0) fail("a FIFO cannot be opened");
  for (int i = 2; i < size; ++i) connect_to(i);
  connect_to(1 - rank);  // after it nothing needs progress while its process sleeps
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
    if (creat(argv[3], 0600) < 0) fail("the file cannot be made");
  } else {
    go_on();
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5 || size < 2) fail("usage: mpirun -np 2 instructions FIFO FIFO FILE WINDOWS");
  rank < 2 ? measure(argv) : be_a_peer(argv[3]);
  MPI_Finalize();
  return 0;
}
