// SPDX-License-Identifier: BSD-3-Clause
//
// What MPI_Init costs a process. Rank 0 prints
//   start NP MILLISECONDS KIBIBYTES
// the median of all processes' processor time in MPI_Init, and of their memory behind it (Pss). No message has been sent then.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// Of all threads, in milliseconds.
static double processor_time(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-3;
}

static double pss_kib(void) {
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  double kib = -1;
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Pss: %lf", &kib) == 1) break;
  if (file != NULL) fclose(file);
  return kib;
}

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static double median_of_all(double mine, int rank, int processes) {
  double* const all = malloc((size_t)processes * sizeof *all);
  if (all == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Gather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0) qsort(all, (size_t)processes, sizeof *all, compare);
  const double median = all[processes / 2];
  free(all);
  return median;
}

int main(int argc, char** argv) {
  const double before = processor_time();
  MPI_Init(&argc, &argv);
  const double took = processor_time() - before;
  const double memory = pss_kib();
  int rank, processes;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const double milliseconds = median_of_all(took, rank, processes);
  const double kib = median_of_all(memory, rank, processes);
  if (rank == 0) printf("start %d %.1f %.0f\n", processes, milliseconds, kib);
  MPI_Finalize();
}
