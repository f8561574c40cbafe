// SPDX-License-Identifier: BSD-3-Clause
//
// Message rate of MPI_THREAD_MULTIPLE: each of N threads of one process sends 8 bytes to its partner in the other, over a
// communicator of its own. Prints messages per second, all threads together:
//   threads THREADS MESSAGES         a window of messages at a time, with all threads of both processes at work
//   threads THREADS MESSAGES alone   bursts, while the other process sleeps: what the senders can do when each has a processor.
//                                    Only the bursts are timed. Both processes must be on one host.
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { window = 64, burst = 256 };

struct job {
  pthread_t thread;
  MPI_Comm comm;
  double from, to;  // of the last burst
};

static int rank, threads, count;
static struct job* jobs;
static pthread_barrier_t start;
static pthread_barrier_t* both;  // of all threads of both processes, in memory that they share
static atomic_uint ready;
static double seconds;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "threads: %s (rank %d)\n", what, rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// By MPI_Testall, as MPI_Waitall lets one thread of a process at a time ask the devices and puts the others to sleep: with more
// threads than processors one of those that are woken waits a time slice for its turn, 3 ms, and that is all that one would see
// (with any BTL: 20 to 50 times less).
static void complete(int n, MPI_Request* requests) {
  int done = 0;
  while (MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && !done) sched_yield();
}

static void check(const long* in, long first, int n) {
  for (int i = 0; i < n; i++)
    if (in[i] != first + i) fail("wrong content");
}

static void windows(MPI_Comm comm, int number) {
  long out[window], in[window];
  MPI_Request requests[window];
  for (int i = 0; i < number; i++) {
    for (int j = 0; j < window; j++) {
      out[j] = (long)i * window + j;
      if (rank == 0)
        MPI_Isend(&out[j], 1, MPI_LONG, 1, j, comm, &requests[j]);
      else
        MPI_Irecv(&in[j], 1, MPI_LONG, 0, j, comm, &requests[j]);
    }
    complete(window, requests);
    if (rank == 1) check(in, (long)i * window, window);
    MPI_Isend(NULL, 0, MPI_BYTE, 1 - rank, window, comm, &requests[0]);
    MPI_Irecv(NULL, 0, MPI_BYTE, 1 - rank, window, comm, &requests[1]);
    complete(2, requests);
  }
}

static void send_burst(struct job* job, long* out, long first, MPI_Request* requests) {
  for (int i = 0; i < burst; i++) out[i] = first + i;
  // All senders begin at once, awake.
  const unsigned turn = atomic_fetch_add(&ready, 1) / (unsigned)threads;
  while (atomic_load(&ready) < (turn + 1) * (unsigned)threads) sched_yield();
  job->from = MPI_Wtime();
  for (int i = 0; i < burst; i++) MPI_Isend(&out[i], 1, MPI_LONG, 1, i, job->comm, &requests[i]);
  job->to = MPI_Wtime();
}

static void bursts(struct job* job, int number) {
  MPI_Request requests[burst];
  long data[burst];
  for (int n = 0; n < number; n++) {
    if (rank == 0) send_burst(job, data, (long)n * burst, requests);
    pthread_barrier_wait(both);
    for (int i = 0; rank == 1 && i < burst; i++) MPI_Irecv(&data[i], 1, MPI_LONG, 0, i, job->comm, &requests[i]);
    complete(burst, requests);
    if (rank == 1) check(data, (long)n * burst, burst);
    pthread_barrier_wait(both);
    if (job == jobs) {
      double from = job->from, to = job->to;
      for (int i = 1; i < threads; i++) {
        from = jobs[i].from < from ? jobs[i].from : from;
        to = jobs[i].to > to ? jobs[i].to : to;
      }
      seconds += to - from;
    }
    pthread_barrier_wait(both);
  }
}

static void* thread_main(void* arg) {
  struct job* job = arg;
  if (both != NULL) {
    bursts(job, count / burst / 10 + 1);
    if (job == jobs) seconds = 0;
    bursts(job, count / burst);
    return NULL;
  }
  windows(job->comm, count / window / 10 + 1);
  pthread_barrier_wait(&start);
  windows(job->comm, count / window);
  return NULL;
}

// A barrier for all threads of both processes.
static void share_barrier(MPI_Win* memory) {
  MPI_Aint bytes;
  int unit;
  pthread_barrierattr_t shared;
  MPI_Win_allocate_shared(rank == 0 ? sizeof *both : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &both, memory);
  MPI_Win_shared_query(*memory, 0, &bytes, &unit, &both);
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  if (rank == 0 && pthread_barrier_init(both, &shared, 2 * (unsigned)threads) != 0) fail("no barrier");
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const bool alone = argc == 4 && strcmp(argv[3], "alone") == 0;
  int have;
  MPI_Win memory = MPI_WIN_NULL;
  threads = argc >= 3 ? atoi(argv[1]) : 0;
  count = argc >= 3 ? atoi(argv[2]) : 0;
  if (threads < 1 || count < burst || argc > 4 || (argc == 4 && !alone)) {
    fprintf(stderr, "usage: mpirun -np 2 threads THREADS MESSAGES [alone]   (messages of each thread, %d or more)\n",
            burst);
    return 2;
  }
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &have);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (have != MPI_THREAD_MULTIPLE) fail("this MPI has no MPI_THREAD_MULTIPLE");
  if (alone) share_barrier(&memory);
  jobs = calloc((size_t)threads, sizeof *jobs);
  if (jobs == NULL) fail("no memory");
  pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; i++) MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
  for (int i = 0; i < threads; i++)
    if (pthread_create(&jobs[i].thread, NULL, thread_main, &jobs[i]) != 0) fail("no thread");
  if (!alone) pthread_barrier_wait(&start);
  const double before = MPI_Wtime();
  for (int i = 0; i < threads; i++) pthread_join(jobs[i].thread, NULL);
  MPI_Barrier(MPI_COMM_WORLD);
  if (!alone) seconds = MPI_Wtime() - before;
  const int sent = alone ? count / burst * burst : count / window * window;
  if (rank == 0) printf("%.0f\n", (double)threads * sent / seconds);
  for (int i = 0; i < threads; i++) MPI_Comm_free(&jobs[i].comm);
  if (memory != MPI_WIN_NULL) MPI_Win_free(&memory);
  MPI_Finalize();
  free(jobs);
  return 0;
}
