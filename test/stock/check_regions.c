// SPDX-License-Identifier: BSD-3-Clause
//
// Large messages between neighbours, from and into ever new memory, many at once, and what is registered meanwhile:
//   mpirun -np N check_regions MOST LEAST_AT_LIMIT DEVICES
// Status 1 if a process had more than MOST memory regions of one of its DEVICES at any time, met its limit fewer times than
// LEAST_AT_LIMIT, or a message is not what was sent. Wants memory that stays registered, so that there are regions to be had back.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { message_size = 200000, at_once = 24, rounds = 8, count = at_once * rounds };

static int rank, size, bad;
static MPI_T_pvar_session session;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_regions: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static MPI_T_pvar_handle open_variable(const char* name) {
  int variables, elements;
  MPI_T_pvar_handle handle;
  MPI_T_pvar_get_num(&variables);
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
    if (MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &elements) != MPI_SUCCESS || elements != 1)
      fail("a variable cannot be opened");
    return handle;
  }
  fail("a variable is not there");
}

static unsigned long long read_variable(MPI_T_pvar_handle handle) {
  unsigned long long value;
  if (MPI_T_pvar_read(session, handle, &value) != MPI_SUCCESS) fail("a variable cannot be read");
  return value;
}

static void expect(int good, const char* what) {
  if (good) return;
  printf("wrong: rank %d: %s\n", rank, what);
  bad = 1;
}

static unsigned char byte_of(int sender, int message, size_t place) {
  return (unsigned char)(sender * 31 + message * 7 + place / 999);
}

int main(int argc, char** argv) {
  int provided, any;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4) fail("it takes three numbers");
  if (MPI_T_pvar_session_create(&session) != MPI_SUCCESS) fail("MPI_T gives no session");
  MPI_T_pvar_handle now = open_variable("btl_fabric_memory_regions");
  MPI_T_pvar_handle most = open_variable("btl_fabric_memory_regions_most");
  MPI_T_pvar_handle at_limit = open_variable("btl_fabric_registrations_at_limit");
  const unsigned long long allowed = strtoull(argv[1], NULL, 10), devices = strtoull(argv[3], NULL, 10);
  unsigned char* out = malloc((size_t)count * message_size);
  unsigned char* in = calloc(count, message_size);
  if (out == NULL || in == NULL) fail("there is not enough memory");
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (int round = 0; round < rounds; round++) {
    MPI_Request requests[2 * at_once];
    for (int i = 0; i < at_once; i++) {
      const int message = round * at_once + i;
      unsigned char* from = out + (size_t)message * message_size;
      for (size_t place = 0; place < message_size; place++) from[place] = byte_of(rank, message, place);
      MPI_Irecv(in + (size_t)message * message_size, message_size, MPI_BYTE, left, message, MPI_COMM_WORLD,
                &requests[i]);
      MPI_Isend(from, message_size, MPI_BYTE, right, message, MPI_COMM_WORLD, &requests[at_once + i]);
    }
    expect(read_variable(now) <= devices * allowed, "there are too many memory regions now");
    MPI_Waitall(2 * at_once, requests, MPI_STATUSES_IGNORE);
  }
  for (int message = 0; message < count; message++)
    for (size_t place = 0; place < message_size; place++)
      if (in[(size_t)message * message_size + place] != byte_of(left, message, place)) {
        expect(0, "a message is not what was sent");
        message = count;
        break;
      }
  expect(read_variable(most) <= allowed, "there were too many memory regions");
  expect(read_variable(now) <= devices * read_variable(most), "there are more memory regions than there ever were");
  expect(read_variable(at_limit) >= strtoull(argv[2], NULL, 10), "the limit was not met");
  printf("rank %d: %llu memory regions, at most %llu; %llu times at the limit\n", rank, read_variable(now),
         read_variable(most), read_variable(at_limit));
  MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && !any) puts("regions are right");
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();  // in this order: see check_counters.c
  MPI_Finalize();
  free(out);
  free(in);
  return any != 0;
}
