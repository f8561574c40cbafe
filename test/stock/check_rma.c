/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided communication: check_mpi --rma. Every byte of every window is
 * known at every synchronisation, whoever wrote it. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_mpi.h"

enum flavor { CREATED, ALLOCATED, FLAVORS };
static const char* const flavor_name[] = {"create", "allocate"};

struct window {
  MPI_Win win;
  char* mem;
  int bytes;
  enum flavor flavor;
};

static struct window open_window(enum flavor flavor, int bytes) {
  struct window w = {.bytes = bytes, .flavor = flavor};
  if (flavor == ALLOCATED) {
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.mem, &w.win);
  } else {
    w.mem = new_buffer(bytes);
    MPI_Win_create(w.mem, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
  }
  memset(w.mem, 0, (size_t)bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  return w;
}

static void close_window(struct window* w) {
  char* mem = w->flavor == CREATED ? w->mem : NULL;
  MPI_Win_free(&w->win);
  free(mem);
}

/* ---- put and get between fences: everybody has a part of every window ---- */

static void put_and_get(struct window* w, int n, int round) {
  int part = w->bytes / size, sum = 0;
  char *out = new_buffer(n * size), *in = new_buffer(n * size);
  MPI_Win_fence(0, w->win);
  for (int d = 0; d < size; d++) {
    int to = (rank + d) % size;
    struct msgid id = {"put", rank, to, round};
    fill(out + (size_t)to * (size_t)n, n, &id);
    MPI_Put(out + (size_t)to * (size_t)n, n, MPI_BYTE, to, rank * part, n, MPI_BYTE, w->win);
  }
  MPI_Win_fence(0, w->win);
  for (int from = 0; from < size; from++) {
    struct msgid id = {"put", from, rank, round};
    verify(w->mem + from * part, n, &id);
  }
  MPI_Win_fence(0, w->win);
  for (int d = 0; d < size; d++) { /* what our right neighbour put there */
    int from = (rank + d) % size;
    MPI_Get(in + (size_t)from * (size_t)n, n, MPI_BYTE, from, (rank + 1) % size * part, n, MPI_BYTE, w->win);
  }
  MPI_Win_fence(0, w->win);
  for (int from = 0; from < size; from++) {
    struct msgid id = {"put", (rank + 1) % size, from, round};
    struct msgid shown = id;
    shown.test = "get";
    verify(in + (size_t)from * (size_t)n, n, &shown);
    sum += n;
  }
  check_int("get (bytes)", n * size, sum, 0);
  free(out);
  free(in);
}

/* ---- passive target: locks, flushes, many origins on one target ---- */

static void locked(struct window* w, int n, int round) {
  int part = w->bytes / size;
  char *out = new_buffer(n), *in = new_buffer(n);
  for (int target = 0; target < size; target++) {
    struct msgid id = {"locked put", rank, target, round};
    fill(out, n, &id);
    MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, w->win);
    MPI_Put(out, n, MPI_BYTE, target, rank * part, n, MPI_BYTE, w->win);
    MPI_Win_flush(target, w->win);
    memset(in, 0, (size_t)n);
    MPI_Get(in, n, MPI_BYTE, target, rank * part, n, MPI_BYTE, w->win);
    MPI_Win_flush(target, w->win);
    verify(in, n, &id);
    MPI_Win_unlock(target, w->win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  free(out);
  free(in);
}

/* A counter, a sum under a lock, and a spin lock made of compare-and-swap. */
static void counters(struct window* w, int rounds) {
  int64_t *mem = (int64_t*)(void*)w->mem, one = 1, old, seen = 0, total = (int64_t)rounds * size;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
  memset(mem, 0, 64);
  MPI_Win_unlock(rank, w->win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, w->win);
  for (int i = 0; i < rounds; i++) {
    MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, w->win);
    MPI_Win_flush(0, w->win);
    if (old < seen || old >= total) check_int("fetch and add (order)", seen, old, (size_t)i);
    seen = old + 1;
    int64_t two = 2;
    MPI_Accumulate(&two, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, MPI_SUM, w->win);
    int32_t bit = 1 << (rank % 31);
    MPI_Accumulate(&bit, 1, MPI_INT32_T, 0, 20, 1, MPI_INT32_T, MPI_BOR, w->win);
    double half = 0.5;
    MPI_Accumulate(&half, 1, MPI_DOUBLE, 0, 24, 1, MPI_DOUBLE, MPI_SUM, w->win);
    /* The spin lock at 32 guards the value at 40, which is read, then put. Who waits for it lets others run: osc/rdma's own
         * lock of the target is not fair, and gives up the processor only while it is held, so that one who tries without a
         * pause can keep its holder out for minutes where there are fewer processors than processes. */
    int64_t mine = rank + 1, none = 0, value;
    for (;;) {
      MPI_Compare_and_swap(&mine, &none, &old, MPI_INT64_T, 0, 32, w->win);
      MPI_Win_flush(0, w->win);
      if (old == 0) break;
      sched_yield();
    }
    MPI_Get(&value, 1, MPI_INT64_T, 0, 40, 1, MPI_INT64_T, w->win);
    MPI_Win_flush(0, w->win);
    value++;
    MPI_Put(&value, 1, MPI_INT64_T, 0, 40, 1, MPI_INT64_T, w->win);
    MPI_Win_flush(0, w->win);
    MPI_Fetch_and_op(&none, &old, MPI_INT64_T, 0, 32, MPI_REPLACE, w->win);
    MPI_Win_flush(0, w->win);
    check_int("compare and swap (owner)", mine, old, (size_t)i);
  }
  MPI_Win_unlock_all(w->win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    int32_t bits = 0;
    double halves;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w->win);
    memcpy(&halves, w->mem + 24, 8);
    for (int i = 0; i < size; i++) bits |= 1 << (i % 31);
    check_int("fetch and add", total, mem[0], 0);
    check_int("accumulate", 2 * total, mem[1], 0);
    check_int("accumulate (or)", bits, ((int32_t*)(void*)w->mem)[5], 0);
    check_int("accumulate (double)", total, (int64_t)(halves * 2), 0);
    check_int("compare and swap", 0, mem[4], 0);
    check_int("compare and swap (guarded)", total, mem[5], 0);
    MPI_Win_unlock(0, w->win);
    passed(6);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Long accumulates from everybody to everybody, and what they return. */
static void accumulates(struct window* w, int n) {
  int64_t *out = malloc((size_t)n * 8), *before = malloc((size_t)n * 8);
  int64_t* mem = (int64_t*)(void*)w->mem;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
  for (int i = 0; i < n; i++) mem[i] = i;
  MPI_Win_unlock(rank, w->win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int d = 0; d < size; d++) {
    int to = (rank + d) % size;
    for (int i = 0; i < n; i++) out[i] = (int64_t)(rank + 1) * (i % 7);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w->win);
    if (d % 2 == 0) {
      MPI_Accumulate(out, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, MPI_SUM, w->win);
    } else {
      MPI_Get_accumulate(out, n, MPI_INT64_T, before, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, MPI_SUM, w->win);
      MPI_Win_flush(to, w->win);
      for (int i = 0; i < n; i++)
        if (before[i] < i) check_int("get accumulate", i, before[i], (size_t)i);
    }
    MPI_Win_unlock(to, w->win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w->win);
  for (int i = 0; i < n; i++)
    check_int("accumulate (long)", i + (int64_t)size * (size + 1) / 2 * (i % 7), mem[i], (size_t)i);
  MPI_Win_unlock(rank, w->win);
  passed(1);
  MPI_Barrier(MPI_COMM_WORLD);
  free(out);
  free(before);
}

/* ---- post, start, complete, wait; derived types on both sides ---- */

static void columns(struct window* w, int rows) {
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int *out = malloc((size_t)rows * 3 * sizeof(int)), *mem = (int*)(void*)w->mem;
  MPI_Group world, to, from;
  MPI_Datatype column, pairs;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &right, &to);
  MPI_Group_incl(world, 1, &left, &from);
  MPI_Type_vector(rows, 1, 3, MPI_INT, &column); /* every third */
  MPI_Type_vector(rows / 2, 2, 5, MPI_INT, &pairs);
  MPI_Type_commit(&column);
  MPI_Type_commit(&pairs);
  for (int i = 0; i < rows * 3; i++) out[i] = i % 3 == 0 ? rank * 1000003 + i / 3 : -7;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win);
  for (int i = 0; i < rows / 2 * 5; i++) mem[i] = -1;
  MPI_Win_unlock(rank, w->win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_post(from, 0, w->win);
  MPI_Win_start(to, 0, w->win);
  MPI_Put(out, 1, column, right, 0, 1, pairs, w->win);
  MPI_Win_complete(w->win);
  MPI_Win_wait(w->win);
  for (int i = 0; i < rows / 2 * 5 - 3; i++)
    check_int("columns", i % 5 < 2 ? left * 1000003 + i / 5 * 2 + i % 5 : -1, mem[i], (size_t)i);
  passed(1);
  MPI_Type_free(&column);
  MPI_Type_free(&pairs);
  MPI_Group_free(&world);
  MPI_Group_free(&to);
  MPI_Group_free(&from);
  MPI_Barrier(MPI_COMM_WORLD);
  free(out);
}

/* Many small operations before one flush: more than any queue takes. */
static void many(struct window* w, int count) {
  int target = (rank + 1) % size, part = w->bytes / size / 8;
  int64_t *out = malloc((size_t)count * 8), *in = malloc((size_t)count * 8);
  if (count > part) count = part;
  MPI_Win_lock_all(0, w->win);
  for (int i = 0; i < count; i++) {
    out[i] = (int64_t)rank << 32 | i;
    MPI_Put(&out[i], 8, MPI_BYTE, target, (rank * part + i) * 8, 8, MPI_BYTE, w->win);
  }
  MPI_Win_flush_all(w->win);
  for (int i = 0; i < count; i++) MPI_Get(&in[i], 8, MPI_BYTE, target, (rank * part + i) * 8, 8, MPI_BYTE, w->win);
  MPI_Win_flush_all(w->win);
  MPI_Win_unlock_all(w->win);
  for (int i = 0; i < count; i++) check_int("many", out[i], in[i], (size_t)i);
  passed(1);
  MPI_Barrier(MPI_COMM_WORLD);
  free(out);
  free(in);
}

/* Memory that is attached after the window is there. */
static void dynamic(int n) {
  MPI_Win win;
  MPI_Aint address, *all = malloc((size_t)size * sizeof(*all));
  char *mem = new_buffer(n), *in = new_buffer(n);
  int right = (rank + 1) % size;
  struct msgid mine = {"dynamic", rank, 0, n}, theirs = {"dynamic", right, 0, n};
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  fill(mem, n, &mine);
  MPI_Win_attach(win, mem, n);
  MPI_Get_address(mem, &address);
  MPI_Allgather(&address, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
  MPI_Get(in, n, MPI_BYTE, right, all[right], n, MPI_BYTE, win);
  MPI_Win_unlock(right, win);
  verify(in, n, &theirs);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_detach(win, mem);
  MPI_Win_free(&win);
  free(mem);
  free(in);
  free(all);
}

void run_rma(void) {
  int sizes[100], n = make_sizes(opt.max, sizes, 100);
  for (int round = 0; round < opt.rounds; round++)
    for (enum flavor f = 0; f < FLAVORS; f++) {
      struct window w = open_window(f, (opt.max + 64) * size);
      char text[64];
      snprintf(text, sizeof(text), "windows: %s", flavor_name[f]);
      step(text);
      for (int i = 1; i < n; i += 2) {
        put_and_get(&w, sizes[i], round * 100 + i);
        locked(&w, sizes[i], round * 100 + i);
      }
      step("counters");
      counters(&w, 50);
      step("accumulates");
      for (int k = 1; k <= opt.max / 8; k *= 13) accumulates(&w, k);
      step("columns");
      for (int rows = 2; rows * 12 <= opt.max && rows <= 4096; rows *= 8) columns(&w, rows);
      step("many");
      many(&w, 3000);
      close_window(&w);
    }
  if (!opt.dynamic) return;
  step("dynamic windows");
  for (int k = 1; k <= opt.max; k = k * 30 + 1) dynamic(k);
}
