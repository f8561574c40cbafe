// SPDX-License-Identifier: BSD-3-Clause
//
// Times messages between two MPI processes: there and back, or a stream in one direction. usage() below says how.
// Before it times a size, it sends messages whose content differs from one to the next, and both sides check them.
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { max_samples = 20000, max_window = 1024, checked_trips = 4 };

static unsigned char* buffer;
static int rank;

static void usage(FILE* to) {
  fputs(
      "Usage: mpirun -np 2 pingpong [OPTIONS]\n\n"
      "Sends messages between two processes and prints a table: half of the round trip's time and the rate that\n"
      "this is (1 MB = 1000000 bytes), the medians of many. The content is checked; status 1 when it is wrong.\n\n"
      "  --min BYTES     first size (default 0)\n"
      "  --max BYTES     last size (default 4194304); sizes double from the first one\n"
      "  --time SECONDS  about how long each size may take (default 1)\n"
      "  --bandwidth     a stream: many messages in one direction, then an answer; the mean of all\n"
      "  --window W      with --bandwidth: that many messages at a time (default 16)\n"
      "  --help          this text\n",
      to);
}

static _Noreturn void fail(const char* what, int size) {
  fprintf(stderr, "pingpong: %s (rank %d, %d bytes)\n", what, rank, size);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// Depends on the place, so that pieces in the wrong order are seen.
static unsigned char pattern(int seed, size_t i) {
  return (unsigned char)((size_t)seed * 37 + i + (i >> 8) * 5 + (i >> 16) * 11);
}

static void send_checked(int size, int seed) {
  for (size_t i = 0; i < (size_t)size; i++) buffer[i] = pattern(seed, i);
  MPI_Send(buffer, size, MPI_BYTE, !rank, seed, MPI_COMM_WORLD);
}

static void receive_checked(int size, int seed) {
  MPI_Status status;
  int length;
  MPI_Recv(buffer, size, MPI_BYTE, !rank, seed, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_BYTE, &length);
  if (length != size) fail("a message has the wrong length", size);
  for (size_t i = 0; i < (size_t)size; i++)
    if (buffer[i] != pattern(seed, i)) fail("a message has the wrong content", size);
}

static double round_trip(int size) {
  const double start = MPI_Wtime();
  if (rank == 0) MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  MPI_Recv(buffer, size, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(buffer, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

static double stream(int size, int window) {
  static MPI_Request requests[max_window];
  const double start = MPI_Wtime();
  for (int i = 0; i < window; i++) {
    // Each message has a place of its own: receives that overlap are not allowed.
    unsigned char* place = buffer + (size_t)i * (size_t)size;
    if (rank == 0)
      MPI_Isend(place, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
    else
      MPI_Irecv(place, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
  if (rank == 0)
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else
    MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

// With a window of 0: a round trip.
static double once(int size, int window) {
  return window ? stream(size, window) : round_trip(size);
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// What once() takes: the median of round trips, as the tail has the scheduler in it, but the mean of streams, whose pauses
// count. perftest does the same.
static double typical_time(int size, int window, double time) {
  static double samples[max_samples];
  for (int seed = 1; seed <= checked_trips; seed++) {
    if (rank == seed % 2)
      send_checked(size, seed);
    else
      receive_checked(size, seed);
  }
  // The faster of two tells how many fit into the time: the first one may have to register the memory.
  const double first = once(size, window), second = once(size, window);
  const double count = time / ((first < second ? first : second) + 1e-9);
  int n = count > max_samples ? max_samples : count < 3 ? 3 : (int)count;
  MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
  double sum = 0;
  for (int i = 0; i < n; i++) sum += samples[i] = once(size, window);
  if (window) return sum / n;
  qsort(samples, (size_t)n, sizeof *samples, by_value);
  return samples[n / 2];
}

// A whole number of the command line, or -1.
static int number(const char* text, long most) {
  char* end;
  const long value = strtol(text, &end, 10);
  return *text == '\0' || *end != '\0' || value < 0 || value > most ? -1 : (int)value;
}

int main(int argc, char** argv) {
  static const struct option options[] = {{"min", required_argument, NULL, 'm'},
                                          {"max", required_argument, NULL, 'M'},
                                          {"time", required_argument, NULL, 't'},
                                          {"bandwidth", no_argument, NULL, 'b'},
                                          {"window", required_argument, NULL, 'w'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
  int min = 0, max = 4 << 20, window = 16, bandwidth = 0, processes, option;
  double time = 1;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  opterr = rank == 0;
  while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
    switch (option) {
      case 'm':
        min = number(optarg, 1 << 30);
        break;
      case 'M':
        max = number(optarg, 1 << 30);
        break;
      case 't':
        time = atof(optarg);
        break;
      case 'b':
        bandwidth = 1;
        break;
      case 'w':
        window = number(optarg, max_window);
        break;
      default:
        if (rank == 0) usage(option == 'h' ? stdout : stderr);
        MPI_Finalize();
        return option == 'h' ? 0 : 2;
    }
  }
  if (optind < argc || min < 0 || max < min || time <= 0 || window < 1 || processes != 2) {
    if (rank == 0) fputs("pingpong: an option is wrong, or there are not two processes (see --help)\n", stderr);
    MPI_Finalize();
    return 2;
  }

  const size_t room = (size_t)(max > 0 ? max : 1) * (size_t)(bandwidth ? window : 1);
  // Whole pages, all of them touched before anything is timed.
  if (posix_memalign((void**)&buffer, 4096, room) != 0) fail("there is not enough memory", max);
  for (size_t i = 0; i < room; i++) buffer[i] = (unsigned char)i;
  if (rank == 0) printf("%10s %14s %12s\n", "bytes", bandwidth ? "us a message" : "latency us", "MB/s");
  for (long size = min; size <= max; size = size ? size * 2 : 1) {
    const int messages = bandwidth ? window : 2;
    const double seconds = typical_time((int)size, bandwidth ? window : 0, time) / messages;
    if (rank == 0) {
      printf("%10ld %14.2f %12.2f\n", size, seconds * 1e6, (double)size / seconds / 1e6);
      fflush(stdout);
    }
  }
  free(buffer);
  MPI_Finalize();
  return 0;
}
