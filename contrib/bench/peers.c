// SPDX-License-Identifier: BSD-3-Clause
//
// What contrib/bench/peers measures, over whatever transport mpirun is told to use:
//   mpirun -np N peers SECONDS OPERATION:BYTES...
// Prints a line for each: the operation, bytes, the figure of rank 0 and its unit. Microseconds: latency (half a round trip), put, get and
// fop (an 8-byte fetch-and-add), each with a flush; allreduce and alltoall of so many bytes (to each). Millions of bytes per second,
// 1 window of messages at a time: bandwidth, and bidirectional (both directions together). Thousands of messages per second: rate.
// Those of two processes are between ranks 0 and 1.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 64, kMostBytes = 4 << 20 };

static int rank, size;
static char *ours, *theirs;  // kMostBytes each; of alltoall for all processes together
static MPI_Win window;
static MPI_Request requests[2 * kWindow];

static void fail(const char* what) {
  fprintf(stderr, "peers: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static int in_flight(int bytes) {
  return bytes <= 65536 ? kWindow : 16;
}

static void latency(int bytes) {
  if (rank == 0) MPI_Send(ours, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
  if (rank < 2) MPI_Recv(theirs, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(ours, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static void stream(int bytes, int sends, int receives) {
  const int count = in_flight(bytes);
  int all = 0;
  char end;
  for (int i = 0; receives && i < count; ++i)
    MPI_Irecv(theirs, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[all++]);
  for (int i = 0; sends && i < count; ++i)
    MPI_Isend(ours, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[all++]);
  MPI_Waitall(all, requests, MPI_STATUSES_IGNORE);
  if (rank == 0) MPI_Recv(&end, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(&end, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}
static void bandwidth(int bytes) {
  if (rank < 2) stream(bytes, rank == 0, rank == 1);
}
static void bidirectional(int bytes) {
  if (rank < 2) stream(bytes, 1, 1);
}

static void put(int bytes) {
  if (rank != 0) return;
  MPI_Put(ours, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
  MPI_Win_flush(1, window);
}
static void get(int bytes) {
  if (rank != 0) return;
  MPI_Get(theirs, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
  MPI_Win_flush(1, window);
}
static void fop(int bytes) {
  (void)bytes;
  if (rank != 0) return;
  MPI_Fetch_and_op(ours, theirs, MPI_INT64_T, 1, 0, MPI_SUM, window);
  MPI_Win_flush(1, window);
}

static void allreduce(int bytes) {
  MPI_Allreduce(ours, theirs, bytes / 8, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}
static void alltoall(int bytes) {
  MPI_Alltoall(ours, bytes, MPI_BYTE, theirs, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

struct operation {
  const char* name;
  const char* unit;
  void (*once)(int bytes);
  int is_one_sided;
};
static const struct operation operations[] = {
    {"latency", "us", latency, 0},
    {"bandwidth", "MB/s", bandwidth, 0},
    {"bidirectional", "MB/s", bidirectional, 0},
    {"rate", "thousand/s", bandwidth, 0},
    {"put", "us", put, 1},
    {"get", "us", get, 1},
    {"fop", "us", fop, 1},
    {"allreduce", "us", allreduce, 0},
    {"alltoall", "us", alltoall, 0},
};

// Seconds that `count` of them take; on rank 0.
static double timed(const struct operation* operation, int bytes, long count) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (operation->is_one_sided) MPI_Win_lock_all(0, window);
  const double start = MPI_Wtime();
  for (long i = 0; i < count; ++i) operation->once(bytes);
  const double took = MPI_Wtime() - start;
  if (operation->is_one_sided) MPI_Win_unlock_all(window);
  return took;
}

static double figure(const char* name, int bytes, double seconds_each) {
  if (strcmp(name, "latency") == 0) return seconds_each * 1e6 / 2;
  if (strcmp(name, "bandwidth") == 0) return bytes * 1e-6 * in_flight(bytes) / seconds_each;
  if (strcmp(name, "bidirectional") == 0) return 2 * bytes * 1e-6 * in_flight(bytes) / seconds_each;
  if (strcmp(name, "rate") == 0) return in_flight(bytes) * 1e-3 / seconds_each;
  return seconds_each * 1e6;
}

// As many as take `seconds`, after a tenth of that for a start.
static void measure(const struct operation* operation, int bytes, double seconds) {
  long count = 1;
  for (;;) {
    double took = timed(operation, bytes, count);
    MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (took >= seconds / 10) {
      count = (long)((double)count * seconds / took) + 1;
      break;
    }
    count = took > seconds / 1000 ? (long)((double)count * seconds / 9 / took) + 1 : count * 8;
  }
  const double took = timed(operation, bytes, count);
  if (rank == 0)
    printf("%s %d %.4f %s\n", operation->name, bytes, figure(operation->name, bytes, took / (double)count),
           operation->unit);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 3 || size < 2) fail("usage: mpirun -np N peers SECONDS OPERATION:BYTES...");
  ours = calloc((size_t)size, kMostBytes);
  theirs = calloc((size_t)size, kMostBytes);
  if (ours == NULL || theirs == NULL) fail("there is no memory");
  int has_window = 0;
  for (int i = 2; i < argc; ++i) {
    const struct operation* operation = NULL;
    const size_t length = strcspn(argv[i], ":");
    const int bytes = argv[i][length] == ':' ? atoi(argv[i] + length + 1) : -1;
    for (size_t k = 0; k < sizeof operations / sizeof operations[0]; ++k)
      if (strlen(operations[k].name) == length && strncmp(operations[k].name, argv[i], length) == 0)
        operation = &operations[k];
    if (operation == NULL || bytes < 0 || bytes > kMostBytes) fail("there is no such operation or size");
    if (operation->is_one_sided && !has_window) {
      MPI_Win_create(theirs, kMostBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
      has_window = 1;
    }
    measure(operation, bytes, atof(argv[1]));
  }
  if (has_window) MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
