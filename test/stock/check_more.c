/* SPDX-License-Identifier: BSD-3-Clause */
/* The rest of check_mpi: datatypes and collectives, and the tests which need a
 * job of their own: threads, a rank which computes, processes come later. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_mpi.h"

/* ---- who speaks first ---- */

enum { FIRST_SIZE = 100 }; /* bytes: an eager message for any transport */

/* Of each pair the lower rank: nobody says a word before it has heard from all
 * lower ranks. */
void run_low_ranks_first(void) {
  unsigned char* buf = new_buffer(FIRST_SIZE);
  MPI_Status st;
  for (int other = 0; other < size; other++) {
    if (other == rank) continue;
    struct msgid out = {"low ranks first", rank, other, 0}, in = {"low ranks first", other, rank, 0};
    if (rank < other) {
      fill(buf, FIRST_SIZE, &out);
      MPI_Send(buf, FIRST_SIZE, MPI_BYTE, other, 8, MPI_COMM_WORLD);
    }
    post_guard(buf, FIRST_SIZE);
    MPI_Recv(buf, FIRST_SIZE + GUARD, MPI_BYTE, other, 8, MPI_COMM_WORLD, &st);
    check_recv(buf, FIRST_SIZE, &in, &st);
    if (rank > other) {
      fill(buf, FIRST_SIZE, &out);
      MPI_Send(buf, FIRST_SIZE, MPI_BYTE, other, 8, MPI_COMM_WORLD);
    }
  }
  free(buf);
}

/* ---- --stall ---- */

static int stall_limit;

/* A thread of its own, as the main one sits in an MPI call when it matters. It
 * makes no MPI call: mpirun ends the job when a process leaves without one. */
static void* watch_main(void* unused) {
  long last = moved();
  for (int idle = 0; idle < stall_limit;) {
    pause_ms(1000);
    long now_moved = moved();
    idle = now_moved == last ? idle + 1 : 0;
    last = now_moved;
  }
  fprintf(stderr, "check_mpi: STALLED: rank %d of %d has neither checked nor sent anything for %d s in: %s\n", rank,
          size, stall_limit, current_step());
  fflush(stderr);
  _exit(1);
  return unused;
}

void watch_for_stalls(int seconds) {
  pthread_t thread;
  stall_limit = seconds;
  if (pthread_create(&thread, NULL, watch_main, NULL) != 0) {
    perror("check_mpi: pthread_create");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  pthread_detach(thread);
}

/* ---- datatypes and collectives ---- */

struct layout {
  int block, stride; /* in ints; {1, 1} is contiguous */
};

static size_t place(struct layout l, int k) {
  return (size_t)(k / l.block) * (size_t)l.stride + (size_t)(k % l.block);
}

/* count ints (a multiple of 6) to the right neighbour, from and to layouts */
static void one_datatype(int count, struct layout from, struct layout to) {
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  size_t span_s = place(from, count), span_r = place(to, count);
  int *sbuf = malloc(span_s * sizeof(int)), *rbuf = malloc(span_r * sizeof(int));
  MPI_Datatype ts, tr;
  for (size_t i = 0; i < span_s; i++) sbuf[i] = -2;
  for (size_t i = 0; i < span_r; i++) rbuf[i] = -1;
  for (int k = 0; k < count; k++) sbuf[place(from, k)] = rank * 1000003 + k;
  MPI_Type_vector(count / from.block, from.block, from.stride, MPI_INT, &ts);
  MPI_Type_vector(count / to.block, to.block, to.stride, MPI_INT, &tr);
  MPI_Type_commit(&ts);
  MPI_Type_commit(&tr);
  MPI_Sendrecv(sbuf, 1, ts, right, 3, rbuf, 1, tr, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int k = 0; k < count; k++) {
    check_int("datatypes", left * 1000003 + k, rbuf[place(to, k)], place(to, k));
    rbuf[place(to, k)] = -1;
  }
  for (size_t i = 0; i < span_r; i++) /* the gaps are as they were */
    check_int("datatypes (gap)", -1, rbuf[i], i);
  passed(1);
  MPI_Type_free(&ts);
  MPI_Type_free(&tr);
  free(sbuf);
  free(rbuf);
}

/* A block of large elements to the right neighbour, who puts it into columns
 * with gaps. Fragments that end inside an element and arrive out of order, as
 * over two devices, upset some MPIs here. */
static void large_elements(int rows, int columns) {
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int count = rows * columns, stride = rows + 150;
  double* sbuf = malloc((size_t)count * 2 * sizeof(double));
  double* rbuf = calloc((size_t)stride * (size_t)columns * 2, sizeof(double));
  MPI_Datatype column;
  for (int i = 0; i < 2 * count; i++) sbuf[i] = rank * 1000003 + i;
  MPI_Type_vector(columns, rows, stride, MPI_C_DOUBLE_COMPLEX, &column);
  MPI_Type_commit(&column);
  MPI_Sendrecv(sbuf, count, MPI_C_DOUBLE_COMPLEX, right, 4, rbuf, 1, column, left, 4, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < 2 * count; i++) {
    int at = i / (2 * rows) * 2 * stride + i % (2 * rows);
    check_int("large elements", left * 1000003 + i, (int64_t)rbuf[at], (size_t)at);
  }
  passed(1);
  MPI_Type_free(&column);
  free(sbuf);
  free(rbuf);
}

void run_datatypes(void) {
  for (int columns = 1; columns <= 160 && 60 * columns * 16 <= opt.max; columns += 13)
    for (int i = 0; i < 3; i++) large_elements(60, columns);
  static const struct layout layouts[] = {{1, 1}, {3, 7}, {2, 1024}, {1, 2}};
  for (int count = 6; count <= 60000 && count * 4 <= opt.max; count *= 10)
    for (int a = 0; a < 4; a++)
      for (int b = 0; b < 4; b++)
        if (count < 60000 || (a != 2 && b != 2)) /* that span is huge */
          one_datatype(count, layouts[a], layouts[b]);
}

void run_collectives(void) {
  for (int n = 1; n <= 320000 && n <= opt.max; n = n * 20 - 3) {
    char* buf = new_buffer(n);
    for (int root = 0; root < size; root++) {
      struct msgid id = {"bcast", root, -1, n};
      memset(buf, 0, (size_t)n);
      if (rank == root) fill(buf, n, &id);
      MPI_Bcast(buf, n, MPI_BYTE, root, MPI_COMM_WORLD);
      verify(buf, n, &id);
    }
    free(buf);

    int m = n / 8 + 1;
    int64_t *in = malloc((size_t)m * 8), *out = malloc((size_t)m * 8), s = size;
    for (int i = 0; i < m; i++) in[i] = (int64_t)(rank + 1) * i + rank;
    MPI_Allreduce(in, out, m, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < m; i++) check_int("allreduce", i * (s * (s + 1) / 2) + s * (s - 1) / 2, out[i], (size_t)i);
    passed(1);
    free(in);
    free(out);
  }
  for (int k = 1; k <= opt.max / 40 && k < 10000; k *= 9) {
    int *v = malloc(sizeof(int) * 4 * (size_t)size), ns = 0, nr = 0;
    int *sn = v, *so = v + size, *rn = v + 2 * size, *ro = v + 3 * size;
    for (int i = 0; i < size; i++) { /* some counts are zero */
      sn[i] = (rank * 7 + i * 13) % 5 * k;
      rn[i] = (i * 7 + rank * 13) % 5 * k;
      so[i] = ns;
      ro[i] = nr;
      ns += sn[i] + 8;
      nr += rn[i] + GUARD;
    }
    char *sbuf = new_buffer(ns), *rbuf = new_buffer(nr);
    memset(rbuf, 0xa5, (size_t)nr);
    for (int i = 0; i < size; i++) {
      struct msgid id = {"alltoallv", rank, i, k};
      fill(sbuf + so[i], sn[i], &id);
    }
    MPI_Alltoallv(sbuf, sn, so, MPI_BYTE, rbuf, rn, ro, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
      struct msgid id = {"alltoallv", i, rank, k};
      verify(rbuf + ro[i], rn[i], &id);
      for (int g = 0; g < GUARD; g++)
        check_int("alltoallv (gap)", 0xa5, (unsigned char)rbuf[ro[i] + rn[i] + g], (size_t)(ro[i] + rn[i] + g));
    }
    free(sbuf);
    free(rbuf);
    free(v);
  }
}

/* ---- --threads: every thread plays ping-pong with all other ranks ---- */

struct job {
  pthread_t thread;
  int number;
  MPI_Comm comm; /* even threads share one and differ by tag */
};

/* Sends to `to` and returns to `from` what came from there. */
static void ping_pong(struct job* job, int to, int from, int n, int number) {
  char *ping = new_buffer(n), *other = new_buffer(n), *pong = new_buffer(n);
  int tag = 2 * job->number;
  struct msgid mine = {"threads (pong)", rank, to, number};
  struct msgid theirs = {"threads (ping)", from, rank, number};
  MPI_Request req[4];
  MPI_Status st;

  fill(ping, n, &mine);
  post_guard(other, n);
  post_guard(pong, n);
  MPI_Irecv(pong, n + GUARD, MPI_BYTE, to, tag + 1, job->comm, &req[0]);
  MPI_Irecv(other, n + GUARD, MPI_BYTE, from, tag, job->comm, &req[1]);
  MPI_Isend(ping, n, MPI_BYTE, to, tag, job->comm, &req[2]);
  MPI_Wait(&req[1], &st);
  check_recv(other, n, &theirs, &st);
  MPI_Isend(other, n, MPI_BYTE, from, tag + 1, job->comm, &req[3]);
  MPI_Wait(&req[0], &st);
  check_recv(pong, n, &mine, &st);
  MPI_Waitall(2, &req[2], MPI_STATUSES_IGNORE);
  free(ping);
  free(other);
  free(pong);
}

static void* thread_main(void* arg) {
  struct job* job = arg;
  int sizes[100], n = make_sizes(opt.max, sizes, 100);
  for (int round = 0; round < opt.rounds; round++)
    for (int i = 0; i < n; i++)
      for (int d = 1; d < size; d++)
        for (int times = sizes[i] <= 1024 ? 10 : 1; times > 0; times--)
          ping_pong(job, (rank + d) % size, (rank + size - d) % size, sizes[i], (job->number * 100 + i) * 16 + times);
  return NULL;
}

void run_threads(int nthreads) {
  struct job* jobs = calloc((size_t)nthreads, sizeof(*jobs));
  step("threads");
  for (int i = 0; i < nthreads; i++) {
    jobs[i].number = i;
    jobs[i].comm = MPI_COMM_WORLD;
    if (i % 2) MPI_Comm_dup(MPI_COMM_WORLD, &jobs[i].comm);
  }
  for (int i = 0; i < nthreads; i++)
    if (pthread_create(&jobs[i].thread, NULL, thread_main, &jobs[i]) != 0) {
      perror("check_mpi: pthread_create");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  for (int i = 0; i < nthreads; i++) pthread_join(jobs[i].thread, NULL);
  for (int i = 1; i < nthreads; i += 2) MPI_Comm_free(&jobs[i].comm);
  free(jobs);
}

/* ---- --compute: rank 1 calls no MPI while the others send to it ---- */

#define COMPUTE_MESSAGES 400

/* Mostly small, some by rendezvous, which cannot end before rank 1 is back. */
static int compute_size(int i) {
  int n = i % 50 == 49 ? 300000 : i * 29 % 2000;
  return n <= opt.max ? n : opt.max;
}

void run_compute(int seconds) {
  MPI_Comm others;
  MPI_Request req[COMPUTE_MESSAGES];
  char* buf[COMPUTE_MESSAGES];

  if (size < 2) {
    fprintf(stderr, "check_mpi: --compute needs two ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  step("a rank computes");
  MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &others);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    volatile double x = 1;
    for (double end = now() + seconds; now() < end;)
      for (int i = 0; i < 100000; i++) x = x * 1.0000001;
    for (int src = 0; src < size; src++)
      for (int i = 0; src != 1 && i < COMPUTE_MESSAGES; i++) {
        int n = compute_size(i);
        struct msgid id = {"compute", src, 1, i};
        MPI_Status st;
        char* in = new_buffer(n);
        post_guard(in, n);
        MPI_Recv(in, n + GUARD, MPI_BYTE, src, 5, MPI_COMM_WORLD, &st);
        check_recv(in, n, &id, &st);
        free(in);
      }
  } else {
    double start = now();
    for (int i = 0; i < COMPUTE_MESSAGES; i++) {
      int n = compute_size(i);
      struct msgid id = {"compute", rank, 1, i};
      buf[i] = new_buffer(n);
      fill(buf[i], n, &id);
      MPI_Isend(buf[i], n, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &req[i]);
    }
    /* A peer which does not answer must not stop talk among the others. */
    for (int i = 0; i < 100; i++) {
      int in = rank + i, sum = 0, n = size - 1;
      MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, others);
      check_int("compute (allreduce)", size * n / 2 - 1 + i * n, sum, 0);
      passed(1);
    }
    if (rank == 0 && opt.verbose) printf("check_mpi: the others needed %.3f s among themselves\n", now() - start);
    MPI_Waitall(COMPUTE_MESSAGES, req, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COMPUTE_MESSAGES; i++) free(buf[i]);
  }
  MPI_Comm_free(&others);
}

/* ---- --spawn: exchange with processes started later, then disconnect ---- */

#define CHILDREN 2

/* Between all of one side and all of the other; base numbers the sides. */
static void exchange_sides(MPI_Comm inter, int base, int remote_base, int nremote) {
  int sizes[] = {0, 1, 4095, 65537, opt.max};
  for (int i = 0; i < 5; i++)
    for (int r = 0; r < nremote; r++) {
      int n = sizes[i] <= opt.max ? sizes[i] : opt.max;
      struct msgid out = {"spawn", base + rank, remote_base + r, i};
      struct msgid in = {"spawn", remote_base + r, base + rank, i};
      char *sbuf = new_buffer(n), *rbuf = new_buffer(n);
      MPI_Request req;
      MPI_Status st;
      fill(sbuf, n, &out);
      post_guard(rbuf, n);
      MPI_Isend(sbuf, n, MPI_BYTE, r, i, inter, &req);
      MPI_Recv(rbuf, n + GUARD, MPI_BYTE, r, i, inter, &st);
      check_recv(rbuf, n, &in, &st);
      MPI_Wait(&req, MPI_STATUS_IGNORE);
      free(sbuf);
      free(rbuf);
    }
}

static void check_family(MPI_Comm inter, int child) {
  MPI_Comm all;
  int one[2] = {1, child}, sum[2], nremote;
  MPI_Comm_remote_size(inter, &nremote);
  exchange_sides(inter, child ? 1000 : 0, child ? 0 : 1000, nremote);
  MPI_Intercomm_merge(inter, child, &all);
  MPI_Allreduce(one, sum, 2, MPI_INT, MPI_SUM, all);
  check_int("spawn (allreduce)", size + nremote, sum[0], 0);
  check_int("spawn (allreduce)", CHILDREN, sum[1], 1);
  passed(1);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&inter);
}

void run_child(MPI_Comm parent) {
  if (parent == MPI_COMM_NULL) {
    fprintf(stderr, "check_mpi: --child is for spawned processes only\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  check_family(parent, 1);
}

void run_spawn(const char* program) {
  char max[16], seed[24];
  char* args[] = {"--child", "--max", max, "--seed", seed, NULL};
  snprintf(max, sizeof(max), "%d", opt.max);
  snprintf(seed, sizeof(seed), "%llu", (unsigned long long)opt.seed);
  for (int round = 0; round < opt.rounds; round++) {
    MPI_Comm inter;
    step("spawn");
    MPI_Comm_spawn(program, args, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    check_family(inter, 0);
  }
}
