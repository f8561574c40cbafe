// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the component's levels through MPI_T, by a thread of its own, while the process sends and receives:
//   mpirun -np 3 check_levels [grows]
// With "grows" the memory of a connection must be more after bursts than before them.
// Levels of a process itself and of one with which there is no connection are 0. Status 1 if what is read does not fit what is done.
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_processes = 64, message_size = 1000, burst = 200, rounds = 40 };

struct level {
  const char* name;
  MPI_T_pvar_handle handle;
  unsigned long long now[most_processes];
  unsigned long long least, most;  // what the thread has seen of the peer
};

static struct level levels[] = {{.name = "btl_fabric_tx_size_left"}, {.name = "btl_fabric_rx_size_left"}};
enum { tx, rx, level_count };
static MPI_T_pvar_session session;
static MPI_T_pvar_handle memory;
static int rank, size, bad;
static atomic_int peer_read, stop;
static atomic_long reads;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_levels: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static void expect(int good, const char* what) {
  if (good) return;
  printf("wrong: rank %d: %s (tx %llu, from %llu to %llu; rx %llu, from %llu to %llu)\n", rank, what,
         levels[tx].now[peer_read], levels[tx].least, levels[tx].most, levels[rx].now[peer_read], levels[rx].least,
         levels[rx].most);
  bad = 1;
}

static int index_of(const char* name) {
  int variables;
  if (MPI_T_pvar_get_num(&variables) != MPI_SUCCESS) fail("MPI_T gives no variables");
  for (int i = 0; i < variables; i++) {
    char found[128], text[1024];
    int name_length = sizeof found, text_length = sizeof text;
    int verbosity, class, bind, read_only, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum meanings;
    if (MPI_T_pvar_get_info(i, found, &name_length, &verbosity, &class, &type, &meanings, text, &text_length, &bind,
                            &read_only, &continuous, &atomic) != MPI_SUCCESS ||
        strcmp(found, name) != 0)
      continue;
    if (class != MPI_T_PVAR_CLASS_LEVEL || type != MPI_UNSIGNED_LONG_LONG || bind != MPI_T_BIND_NO_OBJECT ||
        !read_only || !continuous)
      fail("a variable is not the kind of level that it should be");
    return i;
  }
  fail("a level is not there");
}

static void open_levels(void) {
  if (MPI_T_pvar_session_create(&session) != MPI_SUCCESS) fail("MPI_T gives no session");
  for (int i = 0; i < level_count; i++) {
    int elements;
    if (MPI_T_pvar_handle_alloc(session, index_of(levels[i].name), NULL, &levels[i].handle, &elements) != MPI_SUCCESS)
      fail("a level cannot be opened");
    if (elements != size) fail("a level has not a value for each process");
  }
  int one;
  if (MPI_T_pvar_handle_alloc(session, index_of("btl_fabric_connection_memory"), NULL, &memory, &one) != MPI_SUCCESS ||
      one != 1)
    fail("a level of one number cannot be opened");
}

static void read_levels(void) {
  for (int i = 0; i < level_count; i++)
    if (MPI_T_pvar_read(session, levels[i].handle, levels[i].now) != MPI_SUCCESS) fail("a level cannot be read");
}

static unsigned long long connection_memory(void) {
  unsigned long long bytes;
  if (MPI_T_pvar_read(session, memory, &bytes) != MPI_SUCCESS) fail("a level cannot be read");
  return bytes;
}

// What a tool does.
static void* watch(void* nothing) {
  while (!stop) {
    for (int i = 0; i < level_count; i++) {
      struct level* level = &levels[i];
      unsigned long long values[most_processes];
      if (MPI_T_pvar_read(session, level->handle, values) != MPI_SUCCESS) fail("a level cannot be read");
      const unsigned long long value = values[peer_read];
      if (value < level->least) level->least = value;
      if (value > level->most) level->most = value;
    }
    reads++;
    sched_yield();
  }
  return nothing;
}

// Bursts both ways between ranks 0 and 1. Gives what is left in the middle of one of ours, with nothing polled in between.
static unsigned long long talk(void) {
  static unsigned char in[burst][message_size], out[burst][message_size];
  MPI_Request requests[2 * burst];
  unsigned long long middle = 0;
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < burst; i++) MPI_Irecv(in[i], message_size, MPI_BYTE, !rank, i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < burst; i++)
      MPI_Isend(out[i], message_size, MPI_BYTE, !rank, i, MPI_COMM_WORLD, &requests[burst + i]);
    if (round == 0) {
      read_levels();
      middle = levels[tx].now[!rank];
    }
    MPI_Waitall(2 * burst, requests, MPI_STATUSES_IGNORE);
  }
  return middle;
}

int main(int argc, char** argv) {
  int provided, any;
  pthread_t watcher;
  MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 3 || size > most_processes) fail("it takes three processes or more");
  open_levels();
  peer_read = rank < 2 ? !rank : 0;
  read_levels();
  // MPI_Init has not connected anybody, and only ranks 0 and 1 talk until they have looked.
  for (int i = 0; i < size; i++)
    expect(levels[tx].now[i] == 0 && levels[rx].now[i] == 0, "there is room before there is a connection");
  expect(connection_memory() == 0, "connections have memory before there are any");
  levels[tx].least = levels[rx].least = ~0ULL;
  if (rank < 2) {
    // A message there and back, so that all is set up and has come to rest.
    MPI_Sendrecv(NULL, 0, MPI_BYTE, !rank, 0, NULL, 0, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    read_levels();
    const unsigned long long idle = levels[tx].now[!rank];
    expect(idle > 0, "no room in the send queues of a new connection");
    const unsigned long long first = connection_memory();
    expect(first > 0, "a connection has no memory");
    if (pthread_create(&watcher, NULL, watch, NULL) != 0) fail("no thread can be made");
    while (reads == 0) {
    }
    const unsigned long long middle = talk();
    stop = 1;
    pthread_join(watcher, NULL);
    expect(middle < idle, "messages under way take no room");
    expect(levels[tx].most < 1u << 20 && levels[rx].most < 1u << 20, "there is more room than queues are large");
    expect(levels[tx].least <= levels[tx].most && levels[rx].least <= levels[rx].most, "nothing was seen");
    const unsigned long long later = connection_memory();
    expect(later >= first && (argc < 2 || later > first), "a connection has no more memory after bursts");
    read_levels();
    expect(levels[tx].now[rank] == 0 && levels[rx].now[rank] == 0, "there is room to itself");
    expect(levels[tx].now[2] == 0 && levels[rx].now[2] == 0, "there is room to whom there is no connection");
    printf("rank %d: %llu left at first, %llu in a burst; %ld reads saw %llu to %llu, and %llu to %llu for receives\n",
           rank, idle, middle, (long)reads, levels[tx].least, levels[tx].most, levels[rx].least, levels[rx].most);
    printf("rank %d: the connection had %llu bytes of memory, and %llu after the bursts\n", rank, first, later);
    MPI_Sendrecv(NULL, 0, MPI_BYTE, !rank, 0, NULL, 0, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  for (int i = 2; rank == 0 && i < size; i++) MPI_Send(NULL, 0, MPI_BYTE, i, 0, MPI_COMM_WORLD);
  if (rank >= 2) MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && !any) puts("levels are right");
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();  // in this order: see check_counters.c
  MPI_Finalize();
  return any != 0;
}
