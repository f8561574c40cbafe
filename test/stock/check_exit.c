/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_exit: a process of an MPI job ends in a way that is not the usual one.
 *   check_exit HOW [thread]
 *   mpi_t        the tools interface is initialised before MPI, and never finalised
 *   mpi_t_later  the same, but after MPI_Init
 *   exit         every rank calls exit(5), without MPI_Finalize
 *   one_exits    rank 0 does, while the others wait for a message
 *   abort        rank 0 calls MPI_Abort with 5, while the others wait for a message
 * With "thread" another thread does so, while the main thread waits for a
 * message too. Before that all ranks exchange messages and write into the
 * memory of each other. (No way finalises the tools interface after
 * MPI_Finalize: that crashes in Open MPI 4.1, also with btl self alone.)
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STATUS = 5, WORDS = 100000 };

static const char* how;
static int rank, size;

static void fail(const char* what, int a, int b) {
  fprintf(stderr, "check_exit: rank %d: %s (%d, %d)\n", rank, what, a, b);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int is(const char* name) {
  return strcmp(how, name) == 0;
}

static void communicate(void) {
  static int in[WORDS], out[WORDS];
  int sum = 0, next = (rank + 1) % size, last = (rank + size - 1) % size, *words;
  MPI_Win window;
  for (int i = 0; i < WORDS; i++) out[i] = rank * WORDS + i;
  MPI_Sendrecv(out, WORDS, MPI_INT, next, 1, in, WORDS, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < WORDS; i++)
    if (in[i] != last * WORDS + i) fail("a message has other contents: offset", i, in[i]);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size * (size - 1) / 2) fail("MPI_Allreduce gives another sum", sum, 0);
  MPI_Win_allocate(sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
  MPI_Win_fence(0, window);
  MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, window);
  MPI_Win_fence(0, window);
  if (*words != last) fail("a window has other contents", *words, last);
  MPI_Win_free(&window);
}

static void wait_for_ever(void) {
  int never;
  MPI_Recv(&never, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void* leave(void* unused) {
  (void)unused;
  if (is("abort")) MPI_Abort(MPI_COMM_WORLD, STATUS);
  exit(STATUS);
}

int main(int argc, char** argv) {
  int provided, by_thread = argc > 2 && strcmp(argv[2], "thread") == 0;
  how = argc > 1 ? argv[1] : "exit";
  if (is("mpi_t")) MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init_thread(&argc, &argv, by_thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  if (is("mpi_t_later")) MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  communicate();
  if (is("exit") || rank == 0) {
    printf("check_exit: %s\n", how);
    fflush(stdout);
  }
  if (is("mpi_t") || is("mpi_t_later")) {
    MPI_Finalize();
    return 0;
  }
  if (!is("exit") && rank != 0) wait_for_ever();
  if (by_thread) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave, NULL) != 0) fail("there is no thread to be had", 0, 0);
    wait_for_ever();
  }
  leave(NULL);
  return 1;
}
