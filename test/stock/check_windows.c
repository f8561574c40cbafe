/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_windows FILE: makes windows on memory that has not been registered before, small and large, and puts into the next
 * process's; until there is the file, and for two seconds after that.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { longs_of_page = 512 };
static const int pages_of[] = {1, 7, 64};

/* A window of so many pages, in which process rank + 1 finds what this one has put. */
static int wrong_in_window(int count, int rank, int size, long round) {
  const int longs = count * longs_of_page, to = (rank + 1) % size, from = (rank + size - 1) % size;
  long* const memory = mmap(NULL, longs * sizeof(long) * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long* const origin = memory + longs;
  int wrong = 0;
  MPI_Win window;
  MPI_Win_create(memory, longs * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  for (int i = 0; i < longs; i++) origin[i] = round * size + rank;
  MPI_Win_fence(0, window);
  MPI_Put(origin, longs, MPI_LONG, to, 0, longs, MPI_LONG, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < longs; i++) wrong += memory[i] != round * size + from;
  MPI_Win_free(&window);
  munmap(memory, longs * sizeof(long) * 2);
  return wrong;
}

int main(int argc, char** argv) {
  int rank, size, wrong = 0, sum = 0, go_on = 1;
  double end = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) {
    fprintf(stderr, "usage: mpirun -np 2 check_windows FILE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (long round = 1; go_on; round++) {
    for (unsigned i = 0; i < sizeof pages_of / sizeof pages_of[0]; i++)
      wrong += wrong_in_window(pages_of[i], rank, size, round);
    if (rank == 0 && round == 1) {
      puts("check_windows: each has spoken with the next");
      fflush(stdout);
    }
    if (end == 0 && access(argv[1], F_OK) == 0) end = MPI_Wtime() + 2;
    go_on = end == 0 || MPI_Wtime() < end;
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && sum == 0) puts("check_windows: all is there that was put");
  MPI_Finalize();
  return sum != 0;
}
