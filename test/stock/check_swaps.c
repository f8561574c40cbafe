// SPDX-License-Identifier: BSD-3-Clause
/*
 * check_swaps: is MPI_Compare_and_swap atomic, from whichever host it comes? Everybody counts in process 0's memory by compare and
 * swap alone; process 0 does nothing but wait inside MPI. Does it go on when all that process 0 does is to look at its own memory,
 * by MPI? Status 1 and a line on stderr at a mismatch.
 *
 *   mpirun -np N check_swaps [ROUNDS]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;
static MPI_Win window;
static int64_t* memory;  // this process's part of the window

static _Noreturn void wrong(const char* test, const char* window_made, int64_t expected, int64_t found) {
  fprintf(stderr, "check_swaps: MISMATCH in %s, window made by %s: rank %d of %d: expected %lld, found %lld\n", test,
          window_made, rank, size, (long long)expected, (long long)found);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

/* Adds one to process 0's counter. `seen` is what it was the last time. */
static void count_one(int64_t* seen, const char* made) {
  for (;;) {
    int64_t next = *seen + 1, old;
    MPI_Compare_and_swap(&next, seen, &old, MPI_INT64_T, 0, 0, window);
    MPI_Win_flush(0, window);
    if (old < *seen) wrong("a counter that only grows", made, *seen, old);
    if (old == *seen) {
      *seen = next;
      return;
    }
    *seen = old;
  }
}

/* Process 0 waits for the others' counts, and calls nothing but what reads its own memory. */
static void watching(int rounds, const char* made) {
  const int64_t before = rank == 0 ? *memory : 0, all = before + (int64_t)rounds * (size - 1);
  int64_t seen = before, none = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; rank > 0 && i < rounds; i++) count_one(&seen, made);
  while (rank == 0 && seen < all) {
    MPI_Fetch_and_op(&none, &seen, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
    MPI_Win_flush(0, window);
  }
  if (rank == 0 && seen != all) wrong("a counter that is watched", made, all, seen);
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Everybody but process 0 counts, for `rounds` times and until the others have done theirs: those of process 0's
 * host would be done long before the others if they used shared memory, and are to be there all the time. But not for
 * ever: who is slow finds that somebody else has counted meanwhile, again and again, on a machine with few processors. */
static void counting(int rounds, const char* made) {
  int64_t seen = 0, mine = 0, all = 0;
  const double until = MPI_Wtime() + 15;
  int done = 0;
  MPI_Request others;
  for (; rank > 0 && mine < rounds; mine++) count_one(&seen, made);
  MPI_Ibarrier(MPI_COMM_WORLD, &others);
  while (MPI_Test(&others, &done, MPI_STATUS_IGNORE), !done)
    for (int i = 0; rank > 0 && i < 100 && MPI_Wtime() < until; i++, mine++) count_one(&seen, made);
  MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  int64_t found;
  MPI_Get(&found, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window);
  MPI_Win_flush(0, window);
  if (found != all) wrong("a counter", made, all, found);
}

int main(int argc, char** argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1000;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static const char* const ways[] = {"MPI_Win_create", "MPI_Win_allocate"};
  for (int way = 0; way < 2; way++) {
    static int64_t own;
    memory = &own;
    if (way == 0)
      MPI_Win_create(memory, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    else
      MPI_Win_allocate(sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_lock_all(0, window);
    *memory = 0;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    counting(rounds, ways[way]);
    watching(rounds / 100, ways[way]);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  }
  if (rank == 0) printf("check_swaps: checks passed on %d processes\n", size);
  MPI_Finalize();
  return 0;
}
