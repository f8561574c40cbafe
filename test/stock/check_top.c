// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes that have sent something, and then wait, for contrib/fabric_top to say what it was:
//   check_top FOLDER [child|busy]
// Rank 0 sends 1000 messages of 64 bytes, and four of 1 MiB. Then both stay inside MPI until FOLDER/go is there, finish MPI, and stay
// until FOLDER/end is. `child`: each has a child that stays as long. `busy`: rank 0 sends until FOLDER/go is there.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSmall = 64, kSmallCount = 1000, kLarge = 1 << 20, kLargeCount = 4 };

static const char* folder;

static int is_there(const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

static void transfer(int rank, char* data, int size, int count) {
  for (int i = 0; i < count; ++i) {
    if (rank == 0) {
      MPI_Send(data, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    } else {
      MPI_Recv(data, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

static void send_on(int rank, char* data) {
  for (int on = 1; on;) {
    transfer(rank, data, kSmall, 100);
    transfer(rank, data, kLarge, 1);
    on = !is_there("go");
    MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  folder = argv[1];
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* data = calloc(1, kLarge);
  transfer(rank, data, kSmall, kSmallCount);
  transfer(rank, data, kLarge, kLargeCount);
  MPI_Barrier(MPI_COMM_WORLD);
  if (argc > 2 && strcmp(argv[2], "child") == 0 && fork() == 0) {
    while (!is_there("end")) {
      usleep(10000);
    }
    _exit(0);
  }
  if (rank == 0) {
    puts("check_top: sent");
    fflush(stdout);
  }
  if (argc > 2 && strcmp(argv[2], "busy") == 0) {
    send_on(rank, data);
  }
  while (!is_there("go")) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    usleep(1000);
  }
  MPI_Finalize();
  printf("check_top: over\n");
  fflush(stdout);
  while (!is_there("end")) {
    usleep(10000);
  }
  free(data);
  return 0;
}
