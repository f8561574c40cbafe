// SPDX-License-Identifier: BSD-3-Clause
//
// Has every process talk to every other one, several times so that all ports take part, and then tells, by the component's
// counters, how many queue pairs X queues have taken:
//   mpirun -np N check_queue_pairs FOLDER
// FOLDER is empty and all processes can write to it: there they meet before they talk, as counters count from the time on at
// which they are opened.
// Prints "senders S targets T opened O connections C", sums over all processes.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { rounds = 16, kinds = 4 };

static const char* const names[kinds] = {"btl_fabric_xrc_senders", "btl_fabric_xrc_targets_made",
                                         "btl_fabric_xrc_targets_opened", "btl_fabric_connections_made"};

// Waits until every process has been here, a minute at most.
static void meet_in(const char* folder, int rank, int size) {
  char name[4096];
  snprintf(name, sizeof name, "%s/%d", folder, rank);
  close(open(name, O_CREAT | O_WRONLY, 0600));
  for (int peer = 0, tries = 0; peer < size && tries < 6000;) {
    snprintf(name, sizeof name, "%s/%d", folder, peer);
    if (access(name, F_OK) == 0)
      peer++;
    else {
      tries++;
      usleep(10000);
    }
  }
}

int main(int argc, char** argv) {
  int rank, size, provided, elements, index;
  unsigned long long values[kinds] = {0}, sums[kinds];
  MPI_T_pvar_session session;
  MPI_T_pvar_handle handles[kinds];

  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_T_pvar_session_create(&session);
  for (int i = 0; i < kinds; i++)
    if (MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
        MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &elements) != MPI_SUCCESS) {
      fprintf(stderr, "check_queue_pairs: there is no counter %s\n", names[i]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }

  if (argc != 2) {
    fputs("usage: check_queue_pairs FOLDER\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  meet_in(argv[1], rank, size);
  int *out = calloc((size_t)size, sizeof *out), *in = calloc((size_t)size, sizeof *in);
  MPI_Request* requests = calloc(2 * (size_t)size, sizeof(MPI_Request));
  for (int round = 0; round < rounds; round++) {
    int n = 0;
    for (int peer = 0; peer < size; peer++) {
      if (peer == rank) continue;
      out[peer] = round * 1000 + rank;
      MPI_Irecv(&in[peer], 1, MPI_INT, peer, round, MPI_COMM_WORLD, &requests[n++]);
      MPI_Isend(&out[peer], 1, MPI_INT, peer, round, MPI_COMM_WORLD, &requests[n++]);
    }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < size; peer++)
      if (peer != rank && in[peer] != round * 1000 + peer) {
        fprintf(stderr, "check_queue_pairs: rank %d got a wrong message from rank %d\n", rank, peer);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < kinds; i++) MPI_T_pvar_read(session, handles[i], &values[i]);
  MPI_Allreduce(values, sums, kinds, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("senders %llu targets %llu opened %llu connections %llu\n", sums[0], sums[1], sums[2], sums[3]);
  MPI_T_pvar_session_free(&session);
  // In this order: Open MPI 4.1 crashes, over any transport, when MPI_T_finalize closes what MPI_Finalize has left to it.
  MPI_T_finalize();
  MPI_Finalize();
  return 0;
}
