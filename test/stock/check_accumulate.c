// SPDX-License-Identifier: BSD-3-Clause
/*
 * check_accumulate: does one-sided MPI do with every predefined operation and type what MPI_Reduce_local does with them, when
 * everybody does it to everybody's memory at the same time? And what check_mpi --rma leaves out: small puts that are not
 * aligned, operations of no bytes, requests. Status 1 and a line on stderr at the first mismatch.
 *
 *   mpirun -np N check_accumulate [TIMES]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { elements = 5, most_bytes = elements * 16, rounds = 20 };

static int rank, size;
static long checks;
static MPI_Win window;
static char* memory;  // this process's part of the window
static const int window_bytes = 4096;

static _Noreturn void wrong(const char* test, const char* type, const char* op, int place) {
  fprintf(stderr, "check_accumulate: MISMATCH in %s, %s, %s: rank %d of %d, place %d\n", test, type, op, rank, size,
          place);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

enum kind { INTEGER, UNSIGNED, REAL, COMPLEX, LOGICAL, BYTES, PAIR };
enum { any_integer = 1 << INTEGER | 1 << UNSIGNED };
struct type {
  const char* name;
  MPI_Datatype type;
  enum kind kind;
  int bytes;
};
static struct type types[] = {
    {"int8", MPI_DATATYPE_NULL, INTEGER, 1},    {"int16", MPI_DATATYPE_NULL, INTEGER, 2},
    {"int32", MPI_DATATYPE_NULL, INTEGER, 4},   {"int64", MPI_DATATYPE_NULL, INTEGER, 8},
    {"uint8", MPI_DATATYPE_NULL, UNSIGNED, 1},  {"uint16", MPI_DATATYPE_NULL, UNSIGNED, 2},
    {"uint32", MPI_DATATYPE_NULL, UNSIGNED, 4}, {"uint64", MPI_DATATYPE_NULL, UNSIGNED, 8},
    {"long", MPI_DATATYPE_NULL, INTEGER, 8},    {"float", MPI_DATATYPE_NULL, REAL, 4},
    {"double", MPI_DATATYPE_NULL, REAL, 8},     {"double complex", MPI_DATATYPE_NULL, COMPLEX, 16},
    {"bool", MPI_DATATYPE_NULL, LOGICAL, 1},    {"byte", MPI_DATATYPE_NULL, BYTES, 1},
    {"2int", MPI_DATATYPE_NULL, PAIR, 8},
};
enum { type_count = sizeof(types) / sizeof(types[0]) };

struct op {
  const char* name;
  MPI_Op op;
  unsigned kinds;  // a bit each
};
static struct op ops[] = {
    {"sum", MPI_OP_NULL, any_integer | 1 << REAL | 1 << COMPLEX},
    {"prod", MPI_OP_NULL, any_integer | 1 << REAL | 1 << COMPLEX},
    {"max", MPI_OP_NULL, any_integer | 1 << REAL},
    {"min", MPI_OP_NULL, any_integer | 1 << REAL},
    {"land", MPI_OP_NULL, any_integer | 1 << LOGICAL},
    {"lor", MPI_OP_NULL, any_integer | 1 << LOGICAL},
    {"lxor", MPI_OP_NULL, any_integer | 1 << LOGICAL},
    {"band", MPI_OP_NULL, any_integer | 1 << BYTES},
    {"bor", MPI_OP_NULL, any_integer | 1 << BYTES},
    {"bxor", MPI_OP_NULL, any_integer | 1 << BYTES},
    {"maxloc", MPI_OP_NULL, 1 << PAIR},
    {"minloc", MPI_OP_NULL, 1 << PAIR},
};
enum { op_count = sizeof(ops) / sizeof(ops[0]) };

// They are no constants, so not in the tables.
static void fill_tables(void) {
  const MPI_Datatype t[] = {MPI_INT8_T,   MPI_INT16_T,          MPI_INT32_T,  MPI_INT64_T, MPI_UINT8_T,
                            MPI_UINT16_T, MPI_UINT32_T,         MPI_UINT64_T, MPI_LONG,    MPI_FLOAT,
                            MPI_DOUBLE,   MPI_C_DOUBLE_COMPLEX, MPI_C_BOOL,   MPI_BYTE,    MPI_2INT};
  const MPI_Op o[] = {MPI_SUM,  MPI_PROD, MPI_MAX, MPI_MIN,  MPI_LAND,   MPI_LOR,
                      MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MAXLOC, MPI_MINLOC};
  for (int i = 0; i < type_count; i++) types[i].type = t[i];
  for (int i = 0; i < op_count; i++) ops[i].op = o[i];
}

// Small numbers, so that neither order nor rounding shows in a result, and large unsigned ones, whose sums and products wrap
// around. Rank -1: what is there at first.
static void fill(void* to, const struct type* t, int who, int place) {
  unsigned char* at = to;
  for (int i = 0; i < elements; i++, at += t->bytes) {
    const int64_t value = 1 + (who + 3 + i * 5 + place) % 3 % 2;
    const float f = (float)value;
    const double d[2] = {(double)value, 0};
    const int pair[2] = {(who + 7 * i) % 11, who + 1};
    memset(at, 0, (size_t)t->bytes);
    switch (t->kind) {
      case REAL:
        t->bytes == 4 ? memcpy(at, &f, 4) : memcpy(at, d, 8);
        break;
      case COMPLEX:
        memcpy(at, d, 16);
        break;
      case PAIR:
        memcpy(at, pair, 8);
        break;
      case LOGICAL:
        at[0] = (unsigned char)((who + i) % 2);
        break;
      case BYTES:
        at[0] = (unsigned char)(who * 37 + i * 11 + 5);
        break;
      case INTEGER:
        memcpy(at, &value, (size_t)t->bytes);  // least significant bytes first
        break;
      case UNSIGNED:  // every other one is negative if it is taken for signed
        memcpy(at, &value, (size_t)t->bytes);
        if ((who + 1 + i) % 2) at[t->bytes - 1] |= 0x80;
        break;
    }
  }
}

static void set_memory(const struct type* t, int place) {
  char first[most_bytes];
  fill(first, t, -1, place);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  memset(memory, 0x55, (size_t)window_bytes);
  memcpy(memory + place * t->bytes, first, (size_t)(elements * t->bytes));
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
}

// What is in this process's memory, and around it.
static void check_memory(const char* test, const struct type* t, const char* op, int place, const char* expected) {
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
  const char* at = memory + place * t->bytes;
  if (memcmp(at, expected, (size_t)(elements * t->bytes)) != 0) wrong(test, t->name, op, place);
  for (const char* p = memory; p < memory + window_bytes; p++)
    if ((p < at || p >= at + elements * t->bytes) && *p != 0x55)
      wrong("the memory around it", t->name, op, (int)(p - memory));
  MPI_Win_unlock(rank, window);
  checks++;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void everybody_at_once(const struct type* t, const struct op* o, int place) {
  char mine[most_bytes], expected[most_bytes], other[most_bytes];
  fill(expected, t, -1, place);
  for (int who = 0; who < size; who++) {
    fill(other, t, who, place);
    MPI_Reduce_local(other, expected, elements, t->type, o->op);
  }
  set_memory(t, place);
  fill(mine, t, rank, place);
  MPI_Win_lock_all(0, window);
  for (int d = 0; d < size; d++)
    MPI_Accumulate(mine, elements, t->type, (rank + d) % size, place * t->bytes, elements, t->type, o->op, window);
  MPI_Win_unlock_all(window);
  check_memory("accumulate", t, o->name, place, expected);
}

// One after the other, so that it is known what each finds there.
static void in_turn(const struct type* t, const struct op* o, int place, int one_by_one) {
  char mine[most_bytes], expected[most_bytes], before[most_bytes];
  const int target = size - 1;
  set_memory(t, place);
  fill(expected, t, -1, place);
  for (int who = 0; who < size; who++) {
    fill(mine, t, who, place);
    if (who == rank) {
      memset(before, 0, sizeof before);
      MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window);
      if (one_by_one) {
        for (int i = 0; i < elements; i++)
          MPI_Fetch_and_op(mine + i * t->bytes, before + i * t->bytes, t->type, target, (place + i) * t->bytes, o->op,
                           window);
      } else {
        MPI_Get_accumulate(mine, elements, t->type, before, elements, t->type, target, place * t->bytes, elements,
                           t->type, o->op, window);
      }
      MPI_Win_unlock(target, window);
      if (memcmp(before, expected, (size_t)(elements * t->bytes)) != 0)
        wrong(one_by_one ? "fetch and op, the value before" : "get accumulate, the value before", t->name, o->name,
              place);
      checks++;
    }
    MPI_Reduce_local(mine, expected, elements, t->type, o->op);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank != target) fill(expected, t, -1, place);
  check_memory(one_by_one ? "fetch and op" : "get accumulate", t, o->name, place, expected);
}

static void replace_and_read(const struct type* t, int place) {
  char mine[most_bytes], before[most_bytes];
  const int right = (rank + 1) % size;
  set_memory(t, place);
  fill(mine, t, rank, place);
  MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
  MPI_Accumulate(mine, elements, t->type, right, place * t->bytes, elements, t->type, MPI_REPLACE, window);
  MPI_Win_flush(right, window);
  MPI_Get_accumulate(NULL, 0, t->type, before, elements, t->type, right, place * t->bytes, elements, t->type, MPI_NO_OP,
                     window);
  MPI_Win_unlock(right, window);
  if (memcmp(before, mine, (size_t)(elements * t->bytes)) != 0) wrong("get accumulate", t->name, "no op", place);
  fill(mine, t, (rank + size - 1) % size, place);
  check_memory("accumulate", t, "replace", place, mine);
}

// Everybody counts with compare and swap on the same place; nobody's step may be lost.
static void swap_under_contention(const struct type* t, int place) {
  const int64_t limit = t->bytes == 1 ? 100 : 30000;
  int64_t total = (int64_t)rounds * size < limit ? (int64_t)rounds * size : limit / size * size;
  char zero[8] = {0};
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  memcpy(memory + place * t->bytes, zero, (size_t)t->bytes);
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < total / size; i++) {
    int64_t seen = 0, old = 0, next;
    for (;;) {
      next = seen + 1;
      old = 0;
      MPI_Compare_and_swap(&next, &seen, &old, t->type, 0, place * t->bytes, window);
      MPI_Win_flush(0, window);
      if (old == seen) break;
      seen = old;
    }
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    int64_t value = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    memcpy(&value, memory + place * t->bytes, (size_t)t->bytes);
    MPI_Win_unlock(0, window);
    if (value != total) wrong("compare and swap under contention", t->name, "", place);
  }
  checks++;
  MPI_Barrier(MPI_COMM_WORLD);
}

// Everybody draws numbers from the same counter: each is drawn once.
static void draw_under_contention(const struct type* t, int place) {
  int64_t one = 1, drawn[rounds] = {0}, *all = calloc((size_t)(rounds * size), sizeof(*all));
  char* seen = calloc((size_t)(rounds * size), 1);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  memset(memory, 0, (size_t)window_bytes);
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < rounds; i++) {
    MPI_Fetch_and_op(&one, &drawn[i], t->type, size - 1, place * t->bytes, MPI_SUM, window);
    if (i % 2) MPI_Win_flush(size - 1, window);
  }
  MPI_Win_unlock_all(window);
  MPI_Allgather(drawn, rounds, MPI_INT64_T, all, rounds, MPI_INT64_T, MPI_COMM_WORLD);
  for (int i = 0; i < rounds * size; i++) {
    if (all[i] < 0 || all[i] >= rounds * size || seen[all[i]])
      wrong("fetch and op under contention", t->name, "sum", i);
    seen[all[i]] = 1;
  }
  checks++;
  free(all);
  free(seen);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Puts of 0 to 17 bytes from and to every alignment, with requests; gets of the same.
static void small_and_crooked(void) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  unsigned char out[64], in[64];
  for (int bytes = 0; bytes <= 17; bytes++)
    for (int from = 0; from < 8; from++) {
      const int to = 64 + (from * 3 + bytes) % 8;
      MPI_Request requests[2];
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
      memset(memory, 0x55, (size_t)window_bytes);
      MPI_Win_unlock(rank, window);
      MPI_Barrier(MPI_COMM_WORLD);
      for (int i = 0; i < 64; i++) out[i] = (unsigned char)(rank * 17 + i * 3 + bytes);
      memset(in, 0x66, sizeof in);
      MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
      MPI_Rput(out + from, bytes, MPI_BYTE, right, to, bytes, MPI_BYTE, window, &requests[0]);
      MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      MPI_Win_flush(right, window);
      MPI_Rget(in + from, bytes, MPI_BYTE, right, to, bytes, MPI_BYTE, window, &requests[1]);
      MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
      MPI_Win_unlock(right, window);
      for (int i = 0; i < 64; i++)
        if (in[i] != (i >= from && i < from + bytes ? out[i] : 0x66)) wrong("a small get", "byte", "", i);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
      for (int i = 0; i < window_bytes; i++) {
        const int k = i - to;
        const unsigned char expected = k >= 0 && k < bytes ? (unsigned char)(left * 17 + (from + k) * 3 + bytes) : 0x55;
        if ((unsigned char)memory[i] != expected) wrong("a small put", "byte", "", i);
      }
      MPI_Win_unlock(rank, window);
      checks++;
      MPI_Barrier(MPI_COMM_WORLD);
    }
  // of no elements
  MPI_Win_lock_all(0, window);
  MPI_Accumulate(out, 0, MPI_INT, right, 0, 0, MPI_INT, MPI_SUM, window);
  MPI_Get_accumulate(out, 0, MPI_INT, in, 0, MPI_INT, right, 0, 0, MPI_INT, MPI_SUM, window);
  MPI_Win_flush_local_all(window);
  MPI_Win_unlock_all(window);
}

static void run(void) {
  for (int t = 0; t < type_count; t++) {
    const int place = 1 + t % 3;
    for (int o = 0; o < op_count; o++)
      if (ops[o].kinds & 1U << types[t].kind) {
        everybody_at_once(&types[t], &ops[o], place);
        in_turn(&types[t], &ops[o], place, 0);
        in_turn(&types[t], &ops[o], place, 1);
      }
    replace_and_read(&types[t], place);
    const int is_integer = (any_integer & 1U << types[t].kind) != 0;
    if (is_integer) swap_under_contention(&types[t], place);
    if (is_integer && types[t].bytes >= 4) draw_under_contention(&types[t], place);
  }
  small_and_crooked();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  fill_tables();
  for (int i = 0, times = argc > 1 ? atoi(argv[1]) : 1; i < 2 * times; i++) {
    const int allocated = i % 2;
    void* base = NULL;
    if (allocated) {
      MPI_Win_allocate(window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    } else {
      base = malloc((size_t)window_bytes);
      MPI_Win_create(base, window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    }
    memory = base;
    run();
    MPI_Win_free(&window);
    if (!allocated) free(base);
  }
  if (rank == 0) printf("check_accumulate: %ld checks passed\n", checks);
  MPI_Finalize();
  return 0;
}
