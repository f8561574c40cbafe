/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_life: processes that come, meet, part and go. Every message has its own
 * contents, which its receiver recomputes; the first mismatch ends the job.
 *
 *   check_life meet ROUNDS     spawned processes disconnect, and then meet the
 *                              others again and again by MPI_Comm_connect and
 *                              MPI_Comm_accept, exchange, and disconnect
 *   check_life accept ROUNDS FILE
 *   check_life connect ROUNDS FILE
 *                              the same, of two jobs that are started apart, with
 *                              ompi-server: FILE, which is not there yet, is
 *                              where they tell each other the port
 *   check_life hasty ROUNDS    with processes spawned anew in every round: each
 *                              exchanges its first messages with all of the
 *                              other side, disconnects, and ends
 *   check_life guest ROUNDS    a process spawned in every round sends a message
 *                              to rank 1, as the first contact, which nobody
 *                              receives; it ends while rank 1 is not inside MPI
 *   check_life unwaited ROUNDS every rank sends to all others, frees the
 *                              requests, receives what is for it, and calls
 *                              MPI_Finalize
 *   check_life unheard ROUNDS  every rank sends so many messages to all others,
 *                              which nobody receives, and calls MPI_Finalize
 *   check_life put ROUNDS      every rank writes into the memory of the next
 *                              one, as its first contact, and calls
 *                              MPI_Finalize when that is done
 *
 * CHECK_LIFE_AFTER, if set, is a command that each process runs, with its own
 * process ID as argument, when MPI_Finalize is over. If that fails, so does the
 * process. Prints "N exchanges" of all rounds, of rank 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHILDREN = 2, LARGE = 100000 };

static const int sizes[] = {0, 1, 300, 5000, LARGE};
enum { KINDS = sizeof sizes / sizeof *sizes };

static int rank, size, rounds;
static long exchanges;

static void fail(const char* what, int a, int b) {
  fprintf(stderr, "check_life: rank %d: %s (%d, %d)\n", rank, what, a, b);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

/* Bytes of the message of that size, in that round, from one to another. */
static unsigned char byte_of(int n, int round, int from, int to, int i) {
  unsigned x = (unsigned)(n * 31 + round * 7919 + from * 104729 + to * 1299709 + i);
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return (unsigned char)(x ^ (x >> 12));
}

static unsigned char* new_message(int n, int round, int from, int to) {
  unsigned char* message = malloc((size_t)n + 1);
  if (message == NULL) fail("there is no memory", n, 0);
  for (int i = 0; i < n; i++) message[i] = byte_of(n, round, from, to, i);
  return message;
}

static void receive(MPI_Comm comm, int kind, int round, int from, int from_name, int name) {
  int n = sizes[kind];
  unsigned char* message = malloc((size_t)n + 1);
  MPI_Status status;
  int count;
  if (message == NULL) fail("there is no memory", n, 0);
  MPI_Recv(message, n + 1, MPI_BYTE, from, kind, comm, &status);
  MPI_Get_count(&status, MPI_BYTE, &count);
  if (count != n) fail("a message has another length", n, count);
  for (int i = 0; i < n; i++)
    if (message[i] != byte_of(n, round, from_name, name, i)) fail("a message has other contents: size, offset", n, i);
  free(message);
  exchanges++;
}

/* One message of every size from each to each. Names: those of a side start at its base; `comm` has `others` processes
 * of the other side. Free: nobody waits for the messages sent, which stay where they are. */
static void exchange(MPI_Comm comm, int others, int round, int base, int other_base, int free_requests) {
  int count = others * KINDS, n = 0;
  unsigned char** messages = malloc((size_t)count * sizeof *messages);
  MPI_Request* requests = malloc((size_t)count * sizeof *requests);
  for (int r = 0; r < others; r++)
    for (int k = 0; k < KINDS; k++, n++) {
      messages[n] = new_message(sizes[k], round, base + rank, other_base + r);
      MPI_Isend(messages[n], sizes[k], MPI_BYTE, r, k, comm, &requests[n]);
      if (free_requests) MPI_Request_free(&requests[n]);
    }
  for (int r = 0; r < others; r++)
    for (int k = 0; k < KINDS; k++) receive(comm, k, round, r, other_base + r, base + rank);
  if (free_requests) return;
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  while (n > 0) free(messages[--n]);
  free(messages);
  free(requests);
}

/* The same with all of the other side, and apart again. (Requests must be waited for: in Open MPI 4.1 nothing moves while
 * MPI_Comm_disconnect waits.) */
static void meet(MPI_Comm inter, int round, int base, int other_base) {
  int others;
  MPI_Comm_remote_size(inter, &others);
  exchange(inter, others, round, base, other_base, 0);
  MPI_Comm_disconnect(&inter);
}

/* ---- the parents' half, and the children's */

static void spawn(const char* program, char** args, MPI_Comm* inter) {
  MPI_Comm_spawn(program, args, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, inter, MPI_ERRCODES_IGNORE);
}

static void accept_rounds(const char* port) {
  for (int round = 0; round < rounds; round++) {
    MPI_Comm inter;
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    meet(inter, round, 0, 1000);
  }
}

static void connect_rounds(const char* port) {
  for (int round = 0; round < rounds; round++) {
    MPI_Comm inter;
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    meet(inter, round, 1000, 0);
  }
}

static void run_meet(const char* program) {
  char port[MPI_MAX_PORT_NAME] = "", text[16];
  char* args[] = {"meet-child", text, port, NULL};
  MPI_Comm inter;
  snprintf(text, sizeof text, "%d", rounds);
  if (rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
  spawn(program, args, &inter);
  MPI_Comm_disconnect(&inter);
  accept_rounds(port);
  if (rank == 0) MPI_Close_port(port);
}

static void run_accept(const char* path) {
  char port[MPI_MAX_PORT_NAME] = "", unfinished[4096];
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    snprintf(unfinished, sizeof unfinished, "%s.new", path);
    FILE* file = fopen(unfinished, "w");
    if (file == NULL || fprintf(file, "%s", port) < 0 || fclose(file) != 0 || rename(unfinished, path) != 0)
      fail("the port's file cannot be written", 0, 0);
  }
  accept_rounds(port);
  if (rank == 0) MPI_Close_port(port);
}

static void run_connect(const char* path) {
  char port[MPI_MAX_PORT_NAME] = "";
  if (rank == 0) {
    for (int tries = 0; access(path, R_OK) != 0; tries++) {
      if (tries == 3000) fail("nobody has opened a port for half a minute", 0, 0);
      usleep(10000);
    }
    FILE* file = fopen(path, "r");
    if (file == NULL || fgets(port, sizeof port, file) == NULL) fail("the port's file cannot be read", 0, 0);
    fclose(file);
  }
  connect_rounds(port);
}

static void run_hasty(const char* program) {
  for (int round = 0; round < rounds; round++) {
    char text[16];
    char* args[] = {"hasty-child", text, NULL};
    MPI_Comm inter;
    snprintf(text, sizeof text, "%d", round);
    spawn(program, args, &inter);
    meet(inter, round, 0, 1000);
  }
}

/* The parents leave MPI before the guest has got through to rank 1, and come back when it has gone. */
static void run_guest(const char* program) {
  for (int round = 0; round < rounds; round++) {
    char* args[] = {"guest-child", "1", NULL};
    MPI_Comm inter;
    MPI_Comm_spawn(program, args, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Comm_disconnect(&inter);
    sleep(1);
    for (double start = MPI_Wtime(); MPI_Wtime() - start < 1.5; usleep(1000)) {
      int flag;
      MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    exchanges++;
  }
}

static void run_guest_child(MPI_Comm parent) {
  static int message;
  MPI_Request request;
  MPI_Isend(&message, 1, MPI_INT, 1, 1, parent, &request);
  MPI_Request_free(&request);
  for (double start = MPI_Wtime(); MPI_Wtime() - start < 0.3; usleep(1000)) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 77, parent, &flag, MPI_STATUS_IGNORE);
  }
  MPI_Comm_disconnect(&parent);
}

/* ---- the last thing before MPI_Finalize */

static void run_unwaited(void) {
  for (int round = 0; round < rounds; round++) exchange(MPI_COMM_WORLD, size, round, 0, 0, 1);
}

static void run_unheard(void) {
  static int message; /* still there when it is sent */
  for (int round = 0; round < rounds; round++)
    for (int d = 1; d < size; d++) {
      MPI_Request request;
      MPI_Isend(&message, 1, MPI_INT, (rank + d) % size, 1, MPI_COMM_WORLD, &request);
      MPI_Request_free(&request);
      exchanges++;
    }
}

static void run_put(void) {
  int *memory, mine[1024];
  MPI_Win window;
  MPI_Win_allocate(sizeof mine, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  for (int i = 0; i < 1024; i++) {
    memory[i] = -1;
    mine[i] = rank * 5000 + i;
  }
  MPI_Win_fence(0, window);
  MPI_Put(mine, 1024, MPI_INT, (rank + 1) % size, 0, 1024, MPI_INT, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < 1024; i++)
    if (memory[i] != (rank + size - 1) % size * 5000 + i) fail("other contents in the window", i, memory[i]);
  exchanges++;
  MPI_Win_free(&window);
}

static int run_after(void) {
  const char* after = getenv("CHECK_LIFE_AFTER");
  char command[4096];
  if (after == NULL) return 0;
  snprintf(command, sizeof command, "%s %d", after, (int)getpid());
  return system(command) == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  MPI_Comm parent;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_parent(&parent);
  const int is_child = parent != MPI_COMM_NULL;
  const char* what = argc > 2 ? argv[1] : "";
  rounds = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(what, "meet") == 0)
    run_meet(argv[0]);
  else if (strcmp(what, "accept") == 0 && argc > 3)
    run_accept(argv[3]);
  else if (strcmp(what, "connect") == 0 && argc > 3)
    run_connect(argv[3]);
  else if (strcmp(what, "hasty") == 0)
    run_hasty(argv[0]);
  else if (strcmp(what, "guest") == 0)
    run_guest(argv[0]);
  else if (strcmp(what, "guest-child") == 0 && is_child)
    run_guest_child(parent);
  else if (strcmp(what, "unwaited") == 0)
    run_unwaited();
  else if (strcmp(what, "unheard") == 0)
    run_unheard();
  else if (strcmp(what, "put") == 0)
    run_put();
  else if (strcmp(what, "meet-child") == 0 && argc > 3 && is_child)
    MPI_Comm_disconnect(&parent), connect_rounds(argv[3]);
  else if (strcmp(what, "hasty-child") == 0 && is_child)
    meet(parent, rounds, 1000, 0);
  else {
    fprintf(stderr, "usage: check_life meet|hasty|guest|unwaited|unheard|put ROUNDS, or accept|connect ROUNDS FILE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (rank == 0 && !is_child) {
    printf("check_life: %ld exchanges\n", exchanges);
    fflush(stdout);
  }
  MPI_Finalize();
  return run_after();
}
