/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_child FILE: two or more processes. They speak with each other and then, as soon
 * as there is the file, spawn one child after the other. Each is sent a long message,
 * whose contents it looks at, answers with a short one, and disconnects at once: Open MPI
 * 4.1 makes no progress in that call, so nothing of the child's may wait for any.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { children = 4, length = 2000000 };

static char bytes[length];

static int as_child(MPI_Comm parent) {
  int is_right = 1;
  MPI_Recv(bytes, length, MPI_BYTE, 0, 1, parent, MPI_STATUS_IGNORE);
  for (int k = 0; k < length; k++) is_right &= bytes[k] == (char)(k * 7);
  MPI_Send(&is_right, 1, MPI_INT, 0, 2, parent);
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

int main(int argc, char** argv) {
  int rank, right = 0, token = 1;
  MPI_Comm parent, child;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) return as_child(parent);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc != 2) {
    fprintf(stderr, "usage: mpirun -np 2 check_child FILE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Allreduce(MPI_IN_PLACE, &token, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) puts("check_child: each has spoken");
  fflush(stdout);
  while (access(argv[1], F_OK) != 0) usleep(10000);
  for (int k = 0; k < length; k++) bytes[k] = (char)(k * 7);
  for (int i = 0; i < children; i++) {
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
    if (rank == 0) {
      int answer = 0;
      MPI_Send(bytes, length, MPI_BYTE, 0, 1, child);
      MPI_Recv(&answer, 1, MPI_INT, 0, 2, child, MPI_STATUS_IGNORE);
      right += answer;
    }
    MPI_Comm_disconnect(&child);
  }
  if (rank == 0 && right == children) puts("check_child: all messages are as they were sent");
  MPI_Finalize();
  return rank == 0 && right != children;
}
