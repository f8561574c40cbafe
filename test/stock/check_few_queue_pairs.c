// SPDX-License-Identifier: BSD-3-Clause
//
// Every process talks to every other one, again and again, in an order that each chooses by itself, and checks what it gets. Then
// it reads through MPI_T how many connections had to make room for others:
//   mpirun -np N check_few_queue_pairs ROUNDS LEAST
// Each process says so when it has come out of MPI_Finalize.
// Status 1 if a message is wrong, or fewer than LEAST connections in all processes made room.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most = 20000, tag = 5 };
static const char counter_name[] = "btl_fabric_connections_rested";

static int rank, size;

static _Noreturn void fail(const char* what, int peer, int round) {
  fprintf(stderr, "check_few_queue_pairs: rank %d, peer %d, round %d: %s\n", rank, peer, round, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static int length_of(int from, int to, int round) {
  static const int lengths[] = {0, 8, 100, 1500, 9000, most};
  return lengths[(unsigned)(from * 7 + to * 3 + round) % (sizeof lengths / sizeof *lengths)];
}

static unsigned char byte_of(int from, int to, int round, int at) {
  return (unsigned char)(from * 31 + to * 17 + round * 7 + at);
}

static void check(const unsigned char* got, const MPI_Status* status, int from, int round) {
  int length;
  MPI_Get_count(status, MPI_BYTE, &length);
  if (length != length_of(from, rank, round)) fail("a message has another length", from, round);
  for (int i = 0; i < length; i++)
    if (got[i] != byte_of(from, rank, round, i)) fail("a message has other bytes", from, round);
}

static MPI_T_pvar_handle counter_of(MPI_T_pvar_session session) {
  int count;
  MPI_T_pvar_get_num(&count);
  for (int i = 0; i < count; i++) {
    char name[256], text[1024];
    int name_length = sizeof name, text_length = sizeof text;
    int verbosity, class, bind, read_only, continuous, atomic, elements;
    MPI_Datatype type;
    MPI_T_enum meanings;
    MPI_T_pvar_handle handle;
    if (MPI_T_pvar_get_info(i, name, &name_length, &verbosity, &class, &type, &meanings, text, &text_length, &bind,
                            &read_only, &continuous, &atomic) == MPI_SUCCESS &&
        strcmp(name, counter_name) == 0 &&
        MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &elements) == MPI_SUCCESS) {
      if (!continuous) MPI_T_pvar_start(session, handle);
      return handle;
    }
  }
  fail("there is no such counter", -1, 0);
}

int main(int argc, char** argv) {
  int provided;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 3) fail("usage: check_few_queue_pairs ROUNDS LEAST", -1, 0);
  const int rounds = atoi(argv[1]);
  MPI_T_pvar_session session;
  MPI_T_pvar_session_create(&session);
  MPI_T_pvar_handle counter = counter_of(session);

  unsigned char* got = malloc((size_t)size * most);
  unsigned char* sent = malloc((size_t)size * most);
  MPI_Request* requests = malloc((size_t)size * 2 * sizeof *requests);
  MPI_Status* states = malloc((size_t)size * 2 * sizeof *states);
  srand((unsigned)rank + 1);
  for (int round = 0; round < rounds; round++) {
    const int first = rand() % size, step = rand() % 2 == 0 ? 1 : size - 1;
    int count = 0, peers[2 * size];
    for (int k = 0; k < size; k++) {
      const int peer = (first + k * step) % size;
      if (peer == rank) continue;
      peers[count] = peer;
      MPI_Irecv(got + (size_t)peer * most, most, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[count++]);
    }
    const int receives = count;
    for (int k = 0; k < receives; k++) {
      const int peer = peers[k], length = length_of(rank, peer, round);
      unsigned char* message = sent + (size_t)peer * most;
      for (int i = 0; i < length; i++) message[i] = byte_of(rank, peer, round, i);
      MPI_Isend(message, length, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, states);
    for (int k = 0; k < receives; k++) check(got + (size_t)peers[k] * most, &states[k], peers[k], round);
  }
  unsigned long long rested = 0, sum = 0;
  MPI_T_pvar_read(session, counter, &rested);
  MPI_Reduce(&rested, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    if (sum < strtoull(argv[2], NULL, 10)) fail("fewer connections than that made room", -1, rounds);
    printf("every message is right; %llu connections made room for others\n", sum);
  }
  MPI_T_pvar_handle_free(session, &counter);
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
  MPI_Finalize();
  printf("rank %d is out of MPI_Finalize\n", rank);
  return 0;
}
