/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wireup: what connections cost. Every process exchanges 8 bytes with every
 * other, for the first time, and rank 0 prints
 *   NP, wall clock of it in ms, the same for each connection of a process in
 *   us, memory for each connection of a process in KiB, connections that each
 *   process made (the others were there already, from a barrier).
 * Then the processor time that btl_fabric's progress thread took
 * for each of its connections in us, from schedstat; -1 without that. The main
 * thread's part cannot be told from its waiting.
 * Memory is the proportional set size (Pss of smaps_rollup): what is shared
 * counts once. The second exchange, over connections that are there, is
 * printed for comparison. The last figure is the time in ms from the first
 * process's MPI_Init to the end of the last one's first exchange: some
 * transports (UCX) make all connections in MPI_Init. All on one host.
 */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static double pss_kib(void) {
  char line[256];
  double kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Pss: %lf", &kib) == 1) break;
  if (file != NULL) fclose(file);
  return kib;
}

/* Nanoseconds that the thread has run which makes connections. */
static double progress_thread_ns(void) {
  double ns = -1;
  DIR* tasks = opendir("/proc/self/task");
  struct dirent* one;
  while (tasks != NULL && (one = readdir(tasks)) != NULL) {
    char path[300], name[64] = "";
    FILE* file;
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", one->d_name);
    if ((file = fopen(path, "r")) == NULL) continue;
    if (fscanf(file, "%63s", name) != 1) name[0] = 0;
    fclose(file);
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", one->d_name);
    if (strcmp(name, "btl_fabric") != 0 || (file = fopen(path, "r")) == NULL) continue;
    if (fscanf(file, "%lf", &ns) != 1) ns = -1;
    fclose(file);
  }
  if (tasks != NULL) closedir(tasks);
  return ns;
}

static int rank, size;

/* Everybody with everybody, in the same order of distance. */
static double exchange(int round) {
  double start = MPI_Wtime();
  for (int d = 1; d < size; d++) {
    int to = (rank + d) % size, from = (rank - d + size) % size;
    long out = rank * 1000L + round, in = -1;
    MPI_Sendrecv(&out, sizeof out, MPI_BYTE, to, round, &in, sizeof in, MPI_BYTE, from, round, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (in != from * 1000L + round) {
      fprintf(stderr, "wireup: rank %d got %ld from %d\n", rank, in, from);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  return MPI_Wtime() - start;
}

/* The process's own counter of connections; -1 without btl_fabric. */
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle;
static int counts;

static void count_from_now(void) {
  int provided, index, values;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  if (MPI_T_pvar_get_index("btl_fabric_connections_made", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS) return;
  MPI_T_pvar_session_create(&session);
  counts = MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &values) == MPI_SUCCESS;
}

static double connections(void) {
  unsigned long long value = 0;
  if (!counts) return -1;
  MPI_T_pvar_read(session, handle, &value);
  return (double)value;
}

/* -1 if there are none. */
static double for_each(double sum, double number) {
  return sum > 0 && number > 0 ? sum / number : -1;
}

/* Every receive buffer of a shared queue is used once: they get their memory now, and do not count with the connections. */
static void warm_up(void) {
  long out = 0, in = 0;
  int left = (rank + size - 1) % size, right = (rank + 1) % size;
  for (int i = 0; i < 1100; ++i)
    MPI_Sendrecv(&out, sizeof out, MPI_BYTE, right, 0, &in, sizeof in, MPI_BYTE, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  double begin = now_ms();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double warmed = now_ms();
  warm_up();
  MPI_Barrier(MPI_COMM_WORLD);
  warmed = now_ms() - warmed;
  count_from_now();
  double before = pss_kib();
  double early = connections();
  double ran = progress_thread_ns();
  MPI_Barrier(MPI_COMM_WORLD);
  double first = exchange(1);
  double end = now_ms() - warmed;
  MPI_Barrier(MPI_COMM_WORLD);
  double after = pss_kib();
  double made = connections() - early;
  double took = ran < 0 ? -1 : (progress_thread_ns() - ran) * 1e-3;
  double mine[4] = {after - before, made, first, took}, sum[4], longest;
  MPI_Reduce(mine, sum, 4, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  double job_begin, job_end;
  MPI_Reduce(&begin, &job_begin, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&end, &job_end, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&first, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  double second = exchange(2);
  if (rank == 0 && size > 1)
    printf("wireup %d %.0f %.0f %.1f %.0f %.1f %.0f %.0f\n", size, longest * 1e3,
           for_each(longest * 1e6 * size, sum[1]), for_each(sum[0], sum[1]), for_each(sum[1], size), second * 1e3,
           ran < 0 ? -1 : for_each(sum[3], sum[1]), job_end - job_begin);
  if (counts) MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
  MPI_Finalize();
  return 0;
}
