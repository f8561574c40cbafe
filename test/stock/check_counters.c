// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the component's counters as any MPI program would, through MPI_T, around traffic whose amount it knows:
//   mpirun -np 2 check_counters [--one-sided | --at-once | --in-turns | --idle] [NAME=LEAST | NAME=LEAST-MOST]...
// With --one-sided each process adds to a number of the other one 100 times, and writes and reads 4 KiB of its memory 100 times. Prints every counter that is not zero, summed over the processes. Status 1 if what was counted is not what was done, or
// a named sum is out of its range.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  most_counters = 64,
  name_size = 128,
  small_size = 64,
  large_size = 1 << 20,
  small_count = 3000,
  large_count = 8,
  crossing_size = 1 << 16,
  crossing_count = 100,
  block_size = 4096,
  one_sided_count = 100,
  turns = 1000,
  idle_seconds = 5
};

static const char prefix[] = "btl_fabric_";

struct counter {
  char name[name_size];
  MPI_T_pvar_handle handle;
  unsigned long long value, sum;
};

static struct counter counters[most_counters];
static int counter_count, rank;
static MPI_T_pvar_session session;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_counters: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// Handles to all counters of the component. A handle counts from its making on.
static void find_counters(void) {
  int variables;
  if (MPI_T_pvar_get_num(&variables) != MPI_SUCCESS || MPI_T_pvar_session_create(&session) != MPI_SUCCESS)
    fail("MPI_T gives no variables");
  for (int i = 0; i < variables; i++) {
    struct counter* counter = &counters[counter_count];
    char text[1024];
    int name_length = name_size, text_length = sizeof text;
    int verbosity, class, bind, read_only, continuous, atomic, elements;
    MPI_Datatype type;
    MPI_T_enum meanings;
    if (MPI_T_pvar_get_info(i, counter->name, &name_length, &verbosity, &class, &type, &meanings, text, &text_length,
                            &bind, &read_only, &continuous, &atomic) != MPI_SUCCESS ||
        strncmp(counter->name, prefix, sizeof prefix - 1) != 0)
      continue;
    if (class == MPI_T_PVAR_CLASS_LEVEL) continue;  // check_levels reads those
    if (class != MPI_T_PVAR_CLASS_COUNTER || type != MPI_UNSIGNED_LONG_LONG || bind != MPI_T_BIND_NO_OBJECT ||
        !read_only || !continuous || counter_count == most_counters - 1)
      fail("a variable of the component is not the kind of counter that it should be");
    if (MPI_T_pvar_handle_alloc(session, i, NULL, &counter->handle, &elements) != MPI_SUCCESS || elements != 1)
      fail("a counter cannot be opened");
    counter_count++;
  }
  if (counter_count == 0) fail("the component has no counters");
}

static void read_counters(void) {
  for (int i = 0; i < counter_count; i++) {
    if (MPI_T_pvar_read(session, counters[i].handle, &counters[i].value) != MPI_SUCCESS)
      fail("a counter cannot be read");
    MPI_Allreduce(&counters[i].value, &counters[i].sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  }
}

static const struct counter* find(const char* name, size_t length) {
  for (int i = 0; i < counter_count; i++)
    if (strlen(counters[i].name + sizeof prefix - 1) == length &&
        memcmp(counters[i].name + sizeof prefix - 1, name, length) == 0)
      return &counters[i];
  return NULL;
}

static unsigned long long value_of(const char* name) {
  const struct counter* counter = find(name, strlen(name));
  if (counter == NULL) fail("a counter is not there");
  return counter->value;
}

// An empty message there and back: what comes after it finds the connection made.
static void meet(void) {
  MPI_Sendrecv(NULL, 0, MPI_BYTE, !rank, 3, NULL, 0, MPI_BYTE, !rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Rank 0 sends, small messages that pile up and large ones, and rank 1 answers once.
static void exchange(void) {
  static MPI_Request requests[small_count];
  unsigned char* buffer = calloc(1, large_size);
  if (buffer == NULL) fail("there is not enough memory");
  for (int i = 0; i < small_count; i++)
    if (rank == 0)
      MPI_Isend(buffer, small_size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
    else
      MPI_Irecv(buffer + (size_t)i * small_size, small_size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
  MPI_Waitall(small_count, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < large_count; i++)
    if (rank == 0)
      MPI_Send(buffer, large_size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    else
      MPI_Recv(buffer, large_size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1)
    MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  else
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  free(buffer);
}

// Each process to the other: atomics one after the other, then puts and gets with nothing to wait for between them.
static void access_windows(void) {
  static unsigned char in[one_sided_count * block_size], out[one_sided_count * block_size];
  unsigned char* memory = calloc(1, sizeof in + sizeof(int64_t));
  const int64_t one = 1;
  int64_t before = -1, last = -1;
  MPI_Win window;
  if (memory == NULL) fail("there is not enough memory");
  MPI_Win_create(memory, sizeof in + sizeof(int64_t), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < one_sided_count; i++) {
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, !rank, sizeof in, MPI_SUM, window);
    MPI_Win_flush(!rank, window);
    if (before != last + 1) fail("an atomic has returned another number");
    last = before;
  }
  for (size_t i = 0; i < sizeof out; i++) out[i] = (unsigned char)(i * 7 + i / block_size + (size_t)rank);
  for (int i = 0; i < one_sided_count; i++)
    MPI_Put(out + i * block_size, block_size, MPI_BYTE, !rank, i * block_size, block_size, MPI_BYTE, window);
  MPI_Win_flush_all(window);
  for (int i = 0; i < one_sided_count; i++)
    MPI_Get(in + i * block_size, block_size, MPI_BYTE, !rank, i * block_size, block_size, MPI_BYTE, window);
  MPI_Win_flush_all(window);
  if (memcmp(in, out, sizeof out) != 0) fail("what was read is not what was written");
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  free(memory);
}

// Large messages both ways, all at once.
static void cross(void) {
  MPI_Request requests[2 * crossing_count];
  unsigned char* buffer = calloc(2 * crossing_count, crossing_size);
  if (buffer == NULL) fail("there is not enough memory");
  for (int i = 0; i < 2 * crossing_count; i++) {
    unsigned char* part = buffer + (size_t)i * crossing_size;
    if (i % 2 == 0)
      MPI_Isend(part, crossing_size, MPI_BYTE, !rank, i / 2, MPI_COMM_WORLD, &requests[i]);
    else
      MPI_Irecv(part, crossing_size, MPI_BYTE, !rank, i / 2, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(2 * crossing_count, requests, MPI_STATUSES_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  free(buffer);
}

// Small messages there and back, one after the other.
static void take_turns(void) {
  unsigned char message[small_size], answer[small_size];
  for (int i = 0; i < turns; i++) {
    const int size = i % small_size + 1;
    MPI_Status status;
    int got;
    memset(message, i + rank, sizeof message);
    if (rank == 0) MPI_Send(message, size, MPI_BYTE, 1, i, MPI_COMM_WORLD);
    MPI_Recv(answer, sizeof answer, MPI_BYTE, !rank, i, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    memset(message, i + !rank, sizeof message);
    if (got != size || memcmp(answer, message, (size_t)size) != 0) fail("another message was received than sent");
    memset(message, i + rank, sizeof message);
    if (rank == 1) MPI_Send(message, size, MPI_BYTE, 0, i, MPI_COMM_WORLD);
  }
}

// One message both ways, and then both only wait, for a while.
static void wait_for_nothing(void) {
  unsigned char message[small_size] = {0}, answer[small_size];
  MPI_Sendrecv(message, small_size, MPI_BYTE, !rank, 1, answer, small_size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (const double end = MPI_Wtime() + idle_seconds; MPI_Wtime() < end;) {
    int is_there;
    MPI_Iprobe(!rank, 2, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
    if (is_there) fail("a message has come that nobody has sent");
  }
}

static int expect(int good, const char* what) {
  if (!good) printf("wrong: rank %d: %s\n", rank, what);
  return !good;
}

// What this process's own counters must say after exchange() and nothing else.
static int check_traffic(void) {
  const unsigned long long sent = value_of("messages_sent_inline") + value_of("messages_sent_copied") +
                                  value_of("messages_sent_in_place") + value_of("messages_coalesced");
  const unsigned long long payload = (unsigned long long)small_count * small_size;
  const unsigned long long large = (unsigned long long)large_count * large_size;
  int bad = expect(value_of("connections_made") > 0, "no connection was made");
  bad += expect(value_of("waits_for_connection") > 0, "the first message did not wait for its connection");
  bad += expect(value_of("connections_failed") == 0, "a connection failed");
  if (rank == 0) {
    bad += expect(sent >= small_count, "fewer messages were counted than sent");
    bad += expect(value_of("bytes_sent") + value_of("put_bytes") >= payload, "fewer bytes were counted than sent");
  } else {
    bad += expect(value_of("messages_received") >= small_count, "fewer messages were counted than received");
    // Large messages came as one, or were read, or the sender wrote them. What is read again counts again.
    const unsigned long long read = value_of("get_bytes");
    const int again = value_of("connections_healed") + value_of("carried_by_other_ports") > 0;
    bad += expect(read == 0 || read == large || (again && read > large), "other bytes were read than asked");
    bad += expect((value_of("gets") == 0) == (value_of("get_bytes") == 0), "reads and their bytes disagree");
  }
  return bad;
}

// NAME=LEAST or NAME=LEAST-MOST
static int check_range(const char* text) {
  const char* equals = strchr(text, '=');
  const struct counter* counter = equals != NULL ? find(text, (size_t)(equals - text)) : NULL;
  if (counter == NULL) fail("an argument is no NAME=LEAST or NAME=LEAST-MOST of a counter");
  char* end;
  const unsigned long long least = strtoull(equals + 1, &end, 10);
  const unsigned long long most = *end == '-' ? strtoull(end + 1, NULL, 10) : UINT64_MAX;
  const int good = counter->sum >= least && counter->sum <= most;
  if (!good && rank == 0) printf("wrong: %s is %llu\n", text, counter->sum);
  return !good;
}

int main(int argc, char** argv) {
  const int one_sided = argc > 1 && strcmp(argv[1], "--one-sided") == 0;
  const int at_once = argc > 1 && strcmp(argv[1], "--at-once") == 0;
  const int in_turns = argc > 1 && strcmp(argv[1], "--in-turns") == 0;
  const int idle = argc > 1 && strcmp(argv[1], "--idle") == 0;
  const int is_other = one_sided || at_once || in_turns || idle;
  int size, provided, bad, any;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) fail("it takes two processes");
  find_counters();
  meet();
  one_sided ? access_windows() : at_once ? cross() : in_turns ? take_turns() : idle ? wait_for_nothing() : exchange();
  read_counters();
  bad = is_other ? 0 : check_traffic();
  bad += expect(value_of("windows_bound") == value_of("windows_invalidated"), "a memory window was left open");
  for (int i = 1 + is_other; i < argc; i++) bad += check_range(argv[i]);
  for (int i = 0; rank == 0 && i < counter_count; i++)
    if (counters[i].sum != 0) printf("%-36s %llu\n", counters[i].name, counters[i].sum);
  MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && any == 0) puts("counters are right");
  MPI_T_pvar_session_free(&session);
  // In this order: Open MPI 4.1 crashes, over any transport, when MPI_T_finalize closes what MPI_Finalize has left to it.
  MPI_T_finalize();
  MPI_Finalize();
  return any != 0;
}
