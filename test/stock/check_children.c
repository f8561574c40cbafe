// SPDX-License-Identifier: BSD-3-Clause
//
// A process that spawns many others:
//   check_children N COMMAND [ARGUMENT]...
// COMMAND starts this program again, without arguments. Parent and children exchange a message with each other, the children meet in a
// barrier, and all of them in another. Then the parent has everybody's last word. Status 1 if a message is wrong.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { most_children = 100000, words = 100, tag = 7, last_tag = 8 };

static int word_of(int child, int from_parent, int at) {
  return child * 1009 + from_parent * 31 + at;
}

static void fill(int* message, int child, int from_parent) {
  for (int i = 0; i < words; i++) message[i] = word_of(child, from_parent, i);
}

static void check(const int* message, int child, int from_parent) {
  for (int i = 0; i < words; i++)
    if (message[i] != word_of(child, from_parent, i)) {
      fprintf(stderr, "check_children: word %d of the message %s child %d is %d\n", i, from_parent ? "to" : "of", child,
              message[i]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void be_child(MPI_Comm parent) {
  int rank, out[words], in[words];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fill(out, rank, 0);
  MPI_Sendrecv(out, words, MPI_INT, 0, tag, in, words, MPI_INT, 0, tag, parent, MPI_STATUS_IGNORE);
  check(in, rank, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Barrier(parent);
  MPI_Send(&rank, 1, MPI_INT, 0, last_tag, parent);
}

static void be_parent(MPI_Comm children, unsigned count) {
  MPI_Request* requests = malloc(count * 2 * sizeof *requests);
  int(*out)[words] = malloc(count * sizeof *out);
  int(*in)[words] = calloc(count, sizeof *in);
  for (int child = 0; child < (int)count; child++) {
    fill(out[child], child, 1);
    MPI_Irecv(in[child], words, MPI_INT, child, tag, children, &requests[2 * child]);
    MPI_Isend(out[child], words, MPI_INT, child, tag, children, &requests[2 * child + 1]);
  }
  MPI_Waitall(2 * (int)count, requests, MPI_STATUSES_IGNORE);
  for (int child = 0; child < (int)count; child++) check(in[child], child, 0);
  MPI_Barrier(children);
  for (int child = 0; child < (int)count; child++) {
    int word = -1;
    MPI_Recv(&word, 1, MPI_INT, child, last_tag, children, MPI_STATUS_IGNORE);
    if (word != child) {
      fprintf(stderr, "check_children: the last word of child %d is %d\n", child, word);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  free(requests);
  free(out);
  free(in);
}

int main(int argc, char** argv) {
  MPI_Comm other;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&other);
  if (other != MPI_COMM_NULL) {
    be_child(other);
  } else {
    const int count = argc > 2 ? atoi(argv[1]) : 0;
    if (count < 1 || count > most_children) {
      fprintf(stderr, "usage: check_children N COMMAND [ARGUMENT]...\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double began = MPI_Wtime();
    MPI_Comm_spawn(argv[2], argv + 3, count, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other, MPI_ERRCODES_IGNORE);
    double spawned = MPI_Wtime();
    be_parent(other, (unsigned)count);
    printf("check_children: %d children have met; %.0f s to spawn them, %.0f s to talk\n", count, spawned - began,
           MPI_Wtime() - spawned);
  }
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
