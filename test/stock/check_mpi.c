/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_mpi: does an MPI transport deliver every byte, once, in order, to the
 * right place?  Needs nothing but MPI; every message has its own contents,
 * which the receiver recomputes.  The first mismatch aborts the job (status 1).
 *
 *   check_mpi [--max BYTES] [--rounds N] [--seed N] [--flood N] [-v]
 *             [--low-ranks-first] [--stall SECONDS]
 *   check_mpi --threads N ... | --compute SECONDS ... | --spawn ... | --rma ...
 *
 * The second form runs only the named test (they are in check_more.c and
 * check_rma.c). The very first messages are sent by all ranks at once, or, with
 * --low-ranks-first, by the lower rank of each pair. With --stall, a process
 * that neither checks nor sends anything for so long ends the job and says
 * where: a slow machine is told from a transport that stopped.
 */
#include "check_mpi.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct options opt = {.max = 1 << 20, .rounds = 1, .flood = 10000, .seed = 1, .dynamic = 1};
int rank, size;
static atomic_long checks; /* the threads of --threads count too */
static atomic_long filled; /* messages made to be sent */
static const char* _Atomic step_name = "MPI_Init";

/* ---- contents of messages ---- */

static uint64_t mix(uint64_t x) /* splitmix64 */
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t key_of(const struct msgid* id) {
  uint64_t who = ((uint64_t)(uint32_t)id->src << 32) | (uint32_t)id->dst;
  return mix(mix(mix(opt.seed) ^ who) ^ (uint32_t)id->number);
}

void fill(void* buf, int n, const struct msgid* id) {
  unsigned char* p = buf;
  uint64_t key = key_of(id);
  atomic_fetch_add(&filled, 1);
  for (int i = 0; i < n; i += 8) {
    uint64_t w = mix(key + (uint64_t)i);
    memcpy(p + i, &w, n - i < 8 ? (size_t)(n - i) : 8);
  }
}

void mismatch(const struct msgid* id, size_t offset, uint64_t expected, uint64_t found, const char* what) {
  fprintf(stderr,
          "check_mpi: MISMATCH in %s (%s): rank %d of %d, from %d to %d, "
          "message %d, offset %zu: expected %#llx, found %#llx (seed %llu)\n",
          id->test, what, rank, size, id->src, id->dst, id->number, offset, (unsigned long long)expected,
          (unsigned long long)found, (unsigned long long)opt.seed);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

void verify(const void* buf, int n, const struct msgid* id) {
  const unsigned char* p = buf;
  uint64_t key = key_of(id);
  for (int i = 0; i < n; i += 8) {
    uint64_t w = mix(key + (uint64_t)i);
    int len = n - i < 8 ? n - i : 8;
    if (memcmp(p + i, &w, (size_t)len) == 0) continue;
    const unsigned char* e = (const unsigned char*)&w;
    for (int k = 0; k < len; k++)
      if (p[i + k] != e[k]) mismatch(id, (size_t)(i + k), e[k], p[i + k], "contents");
  }
  passed(1);
}

void* new_buffer(int n) {
  void* p = malloc((size_t)n + GUARD);
  if (p == NULL) {
    fprintf(stderr, "check_mpi: rank %d: no memory for %d bytes\n", rank, n);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
  }
  return p;
}

void post_guard(void* buf, int n) {
  memset((char*)buf + n, 0xa5, GUARD);
}

void check_recv(const void* buf, int n, const struct msgid* id, MPI_Status* st) {
  const unsigned char* p = buf;
  int count;
  MPI_Get_count(st, MPI_BYTE, &count);
  if (count != n) mismatch(id, 0, (uint64_t)n, (uint64_t)count, "length");
  verify(buf, n, id);
  for (int i = 0; i < GUARD; i++)
    if (p[n + i] != 0xa5) mismatch(id, (size_t)(n + i), 0xa5, p[n + i], "written past the end");
}

void check_int(const char* test, int64_t expected, int64_t found, size_t index) {
  struct msgid id = {test, -1, rank, 0};
  if (expected != found) mismatch(&id, index, (uint64_t)expected, (uint64_t)found, "result");
}

void passed(int n) {
  atomic_fetch_add(&checks, n);
}

/* ---- small things ---- */

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

long moved(void) {
  return atomic_load(&checks) + atomic_load(&filled);
}

const char* current_step(void) {
  return atomic_load(&step_name);
}

void pause_ms(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

/* Says what is running, so that the output of a hanging job tells where. */
void step(const char* name) {
  static double start;
  atomic_store(&step_name, name);
  if (start == 0) start = now();
  if (opt.verbose && rank == 0 && !opt.child) {
    printf("check_mpi: %6.2f s %s\n", now() - start, name);
    fflush(stdout);
  }
}

int make_sizes(int limit, int* sizes, int room) {
  int n = 0;
  sizes[n++] = 0;
  for (long p = 1; p - 1 <= limit; p *= 2)
    for (long s = p - 1; s <= p + 1; s++)
      if (s > sizes[n - 1] && s <= limit && n < room) sizes[n++] = (int)s;
  return n;
}

/* ---- tests ---- */

enum order { PREPOSTED, UNEXPECTED, UNSYNCED };

/* Every rank sends k messages of the given sizes to every rank, itself
 * included, all of them outstanding at once.  Buffers are allocated anew each
 * time: large ones come and go by mmap, which a stale registration would not
 * survive. */
static void exchange(const char* test, const int* sizes, int k, enum order how) {
  int n = size * k;
  char** rbuf = malloc(sizeof(*rbuf) * (size_t)n);
  char** sbuf = malloc(sizeof(*sbuf) * (size_t)n);
  MPI_Request* rreq = malloc(sizeof(*rreq) * (size_t)n);
  MPI_Request* sreq = malloc(sizeof(*sreq) * (size_t)n);
  MPI_Status* st = malloc(sizeof(*st) * (size_t)n);
  for (int i = 0; i < n; i++) {
    struct msgid id = {test, rank, i / k, i % k};
    rbuf[i] = new_buffer(sizes[i % k]);
    sbuf[i] = new_buffer(sizes[i % k]);
    post_guard(rbuf[i], sizes[i % k]);
    fill(sbuf[i], sizes[i % k], &id);
  }
  for (int pass = 0; pass < 2; pass++) {
    if (pass == (how == UNEXPECTED)) /* first, or after the sends */
      for (int j = 0; j < n; j++) {
        int i = how == PREPOSTED ? j : n - 1 - j; /* out of tag order */
        MPI_Irecv(rbuf[i], sizes[i % k] + GUARD, MPI_BYTE, i / k, i % k, MPI_COMM_WORLD, &rreq[i]);
      }
    else
      for (int i = 0; i < n; i++) MPI_Isend(sbuf[i], sizes[i % k], MPI_BYTE, i / k, i % k, MPI_COMM_WORLD, &sreq[i]);
    if (pass == 0 && how != UNSYNCED) MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Waitall(n, rreq, st);
  for (int i = 0; i < n; i++) {
    struct msgid id = {test, i / k, rank, i % k};
    check_recv(rbuf[i], sizes[i % k], &id, &st[i]);
  }
  MPI_Waitall(n, sreq, MPI_STATUSES_IGNORE);
  for (int i = 0; i < n; i++) {
    free(rbuf[i]);
    free(sbuf[i]);
  }
  free(rbuf);
  free(sbuf);
  free(rreq);
  free(sreq);
  free(st);
}

/* All ranks speak to all others first at the same moment: at the next full
 * fifth of a second of the (common) clock, before anything else is sent. */
static void first_contact(void) {
  struct timespec t;
  do clock_gettime(CLOCK_REALTIME, &t);
  while (t.tv_nsec % 200000000L > 20000000L);
  exchange("first contact", (int[]){8, 100}, 2, UNSYNCED);
}

static void all_sizes(void) {
  int sizes[100], n = make_sizes(opt.max, sizes, 100), bulk = 0;
  while (bulk < n && sizes[bulk] <= 16385) bulk++;
  for (enum order how = PREPOSTED; how <= UNSYNCED; how++) {
    exchange("bulk exchange", sizes, bulk, how);
    for (int i = bulk; i < n; i += 3) exchange("large exchange", sizes + i, n - i < 3 ? n - i : 3, how);
  }
}

/* What rank 0 sends goes round by way of everybody. */
static void ring(void) {
  int sizes[100], n = make_sizes(opt.max, sizes, 100);
  char* buf = new_buffer(opt.max);
  for (int i = 0; i < n; i += 2) {
    struct msgid id = {"ring", 0, 0, i};
    MPI_Status st;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request req = MPI_REQUEST_NULL;
    if (rank == 0) { /* Isend: with one rank it is its own receiver */
      char* copy = new_buffer(sizes[i]);
      fill(copy, sizes[i], &id);
      MPI_Isend(copy, sizes[i], MPI_BYTE, right, i, MPI_COMM_WORLD, &req);
      post_guard(buf, sizes[i]);
      MPI_Recv(buf, sizes[i] + GUARD, MPI_BYTE, left, i, MPI_COMM_WORLD, &st);
      MPI_Wait(&req, MPI_STATUS_IGNORE);
      free(copy);
    } else {
      post_guard(buf, sizes[i]);
      MPI_Recv(buf, sizes[i] + GUARD, MPI_BYTE, left, i, MPI_COMM_WORLD, &st);
      MPI_Send(buf, sizes[i], MPI_BYTE, right, i, MPI_COMM_WORLD);
    }
    check_recv(buf, sizes[i], &id, &st);
  }
  free(buf);
}

/* How many messages every rank has sent in floods: a receiver that calls no MPI
 * sees there when its sender can go no further. Null if they are on several hosts,
 * or there is no /dev/shm. */
static atomic_long* flood_sent;

static void share_counts(void) {
  struct {
    char name[40];
    long secret;
  } file = {"/dev/shm/check_mpi.XXXXXX", 0};
  size_t bytes = sizeof(long) * (size_t)(size + 1);
  int fd = -1;
  if (rank == 0 && (fd = mkstemp(file.name)) >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
    file.secret = (long)mix((uint64_t)getpid() ^ (uint64_t)(now() * 1e9)) | 1;
    if (write(fd, &file.secret, sizeof file.secret) != (ssize_t)sizeof file.secret) file.secret = 0;
  }
  MPI_Bcast(&file, sizeof file, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) fd = open(file.name, O_RDWR);
  void* shared = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int mine = shared != MAP_FAILED && file.secret != 0 && *(long*)shared == file.secret, all;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (all) flood_sent = (atomic_long*)shared + 1;
  if (fd >= 0) close(fd);
  if (rank == 0) unlink(file.name);
}

/* Until the sender, which will have sent `all`, has stopped for a while. It starts
 * late if what this rank sent before still waits here for credits: until then this
 * rank calls MPI. */
static void sleep_through_flood(int sender, long received, long all) {
  long before = -1;
  int flag;
  if (flood_sent == NULL) {
    pause_ms(300);
    return;
  }
  while (received < all && atomic_load(&flood_sent[sender]) == received)
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  for (int idle = 0; idle < 20 && before < all; pause_ms(1)) {
    long sent = atomic_load(&flood_sent[sender]);
    idle = sent == before ? idle + 1 : 0;
    before = sent;
  }
}

/* Odd ranks flood their lower neighbour, which is asleep at first and slow
 * later; the contents are numbered, so they also show the order. */
static void flood(int direction) {
  static long received; /* in all floods */
  int peer = rank ^ 1, sender = (rank & 1) == direction;
  char buf[300 + GUARD];
  MPI_Barrier(MPI_COMM_WORLD);
  if (peer >= size) return;
  if (!sender) sleep_through_flood(peer, received, received + opt.flood);
  for (int i = 0; i < opt.flood; i++) {
    int n = i * 37 % 301;
    struct msgid id = {"flood", sender ? rank : peer, sender ? peer : rank, i};
    MPI_Status st;
    if (sender) {
      fill(buf, n, &id);
      MPI_Send(buf, n, MPI_BYTE, peer, 7, MPI_COMM_WORLD);
      if (flood_sent != NULL) atomic_fetch_add(&flood_sent[rank], 1);
    } else {
      post_guard(buf, n);
      MPI_Recv(buf, n + GUARD, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &st);
      check_recv(buf, n, &id, &st);
      if (i % 1000 == 999) pause_ms(2);
    }
  }
  if (!sender) received += opt.flood;
}

/* Everybody to one, received from anybody: messages of one sender must not
 * overtake each other, whatever their sizes. */
static void many_to_one(int root) {
  static const int sizes[] = {1, 100, 5000, 0, 70000, 3, 1000, 20000};
  int total = 64, *next = calloc((size_t)size, sizeof(*next));
  char* buf = new_buffer(70000);
  for (int i = 0; rank != root && i < total; i++) {
    int n = sizes[i % 8] <= opt.max ? sizes[i % 8] : opt.max;
    struct msgid id = {"many to one", rank, root, i};
    fill(buf, n, &id);
    if (i % 3 == 0)
      MPI_Ssend(buf, n, MPI_BYTE, root, i, MPI_COMM_WORLD);
    else
      MPI_Send(buf, n, MPI_BYTE, root, i, MPI_COMM_WORLD);
  }
  for (int left = total * (size - 1); rank == root && left > 0; left--) {
    MPI_Status st;
    int src = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;
    if (left % 2) { /* every other one found by a probe */
      MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
      src = st.MPI_SOURCE;
      tag = st.MPI_TAG;
    }
    memset(buf, 0xa5, 70000 + GUARD);
    MPI_Recv(buf, 70000 + GUARD, MPI_BYTE, src, tag, MPI_COMM_WORLD, &st);
    int i = next[st.MPI_SOURCE]++;
    int n = sizes[i % 8] <= opt.max ? sizes[i % 8] : opt.max;
    struct msgid id = {"many to one", st.MPI_SOURCE, root, i};
    if (st.MPI_TAG != i) mismatch(&id, 0, (uint64_t)i, (uint64_t)st.MPI_TAG, "order (tag)");
    check_recv(buf, n, &id, &st);
  }
  MPI_Barrier(MPI_COMM_WORLD); /* or the next root's messages would mix in */
  free(buf);
  free(next);
}

static void run_all(void) {
  if (opt.low_first) {
    step("low ranks first");
    run_low_ranks_first();
  }
  step("first contact");
  first_contact();
  share_counts();
  for (int round = 0; round < opt.rounds; round++, opt.seed++) {
    step("exchange of all sizes");
    all_sizes();
    step("ring");
    ring();
    step("flood");
    flood(1);
    flood(0);
    MPI_Barrier(MPI_COMM_WORLD);
    step("many to one");
    many_to_one(0);
    many_to_one(size - 1);
    step("datatypes");
    run_datatypes();
    step("collectives");
    run_collectives();
  }
}

static void usage(void) {
  fprintf(stderr,
          "usage: check_mpi [--max BYTES] [--rounds N] [--seed N] "
          "[--flood N] [-v]\n"
          "                 [--low-ranks-first] [--stall SECONDS]\n"
          "                 [--threads N | --compute SECONDS | --spawn | --rma [--no-dynamic]]\n");
  exit(2);
}

int main(int argc, char** argv) {
  static const struct option longopts[] = {{"max", 1, NULL, 'm'},
                                           {"rounds", 1, NULL, 'r'},
                                           {"seed", 1, NULL, 's'},
                                           {"flood", 1, NULL, 'f'},
                                           {"threads", 1, NULL, 't'},
                                           {"compute", 1, NULL, 'c'},
                                           {"spawn", 0, NULL, 'p'},
                                           {"child", 0, NULL, 'C'},
                                           {"rma", 0, NULL, 'R'},
                                           {"no-dynamic", 0, NULL, 'D'},
                                           {"low-ranks-first", 0, NULL, 'L'},
                                           {"stall", 1, NULL, 'S'},
                                           {"verbose", 0, NULL, 'v'},
                                           {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "v", longopts, NULL)) != -1;) {
    switch (c) {
      case 'm':
        opt.max = atoi(optarg);
        break;
      case 'r':
        opt.rounds = atoi(optarg);
        break;
      case 's':
        opt.seed = strtoull(optarg, NULL, 0);
        break;
      case 'f':
        opt.flood = atoi(optarg);
        break;
      case 't':
        opt.threads = atoi(optarg);
        break;
      case 'c':
        opt.compute = atoi(optarg);
        break;
      case 'p':
        opt.spawn = 1;
        break;
      case 'R':
        opt.rma = 1;
        break;
      case 'D':
        opt.dynamic = 0;
        break;
      case 'C':
        opt.child = 1;
        break;
      case 'L':
        opt.low_first = 1;
        break;
      case 'S':
        opt.stall = atoi(optarg);
        break;
      case 'v':
        opt.verbose = 1;
        break;
      default:
        usage();
    }
  }
  if (optind != argc || opt.max < 1 || opt.max > 1 << 28) usage();

  int want = opt.threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, have;
  MPI_Init_thread(NULL, NULL, want, &have);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (have < want) {
    fprintf(stderr, "check_mpi: MPI_THREAD_MULTIPLE is not provided\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (opt.stall) watch_for_stalls(opt.stall);
  MPI_Comm parent;
  MPI_Comm_get_parent(&parent);
  if (opt.child)
    run_child(parent);
  else if (opt.threads)
    run_threads(opt.threads);
  else if (opt.compute)
    run_compute(opt.compute);
  else if (opt.spawn)
    run_spawn(argv[0]);
  else if (opt.rma)
    run_rma();
  else
    run_all();

  long mine = checks, total = 0;
  MPI_Reduce(&mine, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  step("end");
  if (rank == 0 && !opt.child) printf("check_mpi: %ld checks passed\n", total);
  MPI_Finalize();
  return 0;
}
