/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the two halves of check_mpi: see check_mpi.c. */
#ifndef CHECK_MPI_H
#define CHECK_MPI_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes after every receive buffer which no message may touch. */
#define GUARD 16

struct options {
  int max; /* largest message in bytes */
  int rounds;
  int flood;   /* messages of a one-directional flood */
  int threads; /* the modes: 0 when not asked for */
  int compute;
  int spawn;
  int rma;
  int dynamic; /* windows that memory is attached to later */
  int child;
  int low_first; /* of each pair, the lower rank speaks first */
  int stall;     /* seconds without progress that end the job; 0: for ever */
  int verbose;
  uint64_t seed;
};

extern struct options opt;
extern int rank, size;

/* A message is identified by who sent it to whom and a number; its contents
 * follow from these and the seed, so the receiver needs nothing else. */
struct msgid {
  const char* test;
  int src, dst, number;
};

void fill(void* buf, int n, const struct msgid* id);
void verify(const void* buf, int n, const struct msgid* id);
void mismatch(const struct msgid* id, size_t offset, uint64_t expected, uint64_t found, const char* what);

/* Message plus guard: post_guard before the receive is posted (with n + GUARD
 * bytes, so that a message which is too long shows), check_recv after it. */
void* new_buffer(int n);
void post_guard(void* buf, int n);
void check_recv(const void* buf, int n, const struct msgid* id, MPI_Status* st);

void check_int(const char* test, int64_t expected, int64_t found, size_t index);
void passed(int n);
void step(const char* name);
double now(void);
void pause_ms(int ms);

/* What --stall watches: grows with every check and message; the step that is
 * running. Both may be called by any thread. */
long moved(void);
const char* current_step(void);

/* 0, 1, 2, 3, 4, 5, 7, 8, 9, ...: powers of two plus/minus one up to limit */
int make_sizes(int limit, int* sizes, int room);

void run_datatypes(void);
void run_collectives(void);
void run_threads(int nthreads);
void run_compute(int seconds);
void run_spawn(const char* program);
void run_rma(void);
void run_low_ranks_first(void);
void watch_for_stalls(int seconds);
void run_child(MPI_Comm parent);

#endif
