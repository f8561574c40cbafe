/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A process and the two that it spawns connect, exchange messages of many sizes, and disconnect, again and again. What one says
 * last must leave without its help: MPI_Comm_disconnect waits in PMIx, where nobody makes progress (Open MPI 5.0).
 *   check_disconnect ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMessages = 12, kLongest = 300000 };
static const int sizes[] = {1, 100, 1500, 5000, 40000, kLongest};
enum { kSizes = sizeof sizes / sizeof sizes[0], kMostPeers = 2 };

static unsigned char *sent[kMostPeers * kMessages], *received[kMostPeers * kMessages];

static int size_of(int message) {
  return sizes[message % kSizes];
}
static unsigned char byte_of(int sender, int message, int round, int at) {
  return (unsigned char)(sender * 31 + message * 7 + round * 3 + at);
}

static void exchange(MPI_Comm peers, int self, int first_peer, int round) {
  MPI_Request requests[2 * kMostPeers * kMessages];
  int count = 0, peer_count;
  MPI_Comm_remote_size(peers, &peer_count);
  for (int i = 0; i < peer_count * kMessages; ++i) {
    const int message = i % kMessages, peer = i / kMessages;
    for (int at = 0; at < size_of(message); ++at) {
      sent[i][at] = byte_of(self, message, round, at);
    }
    MPI_Isend(sent[i], size_of(message), MPI_BYTE, peer, message, peers, &requests[count++]);
    MPI_Irecv(received[i], size_of(message), MPI_BYTE, peer, message, peers, &requests[count++]);
  }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < peer_count * kMessages; ++i) {
    const int message = i % kMessages, peer = i / kMessages;
    for (int at = 0; at < size_of(message); ++at) {
      if (received[i][at] != byte_of(first_peer + peer, message, round, at)) {
        printf("check_disconnect: round %d: byte %d of message %d is wrong\n", round, at, message);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
}

/* A burst of small messages one way, each of which MPI says is sent. */
static void say_last_words(MPI_Comm peers, int is_sender) {
  enum { kWords = 40 };
  int peer_count;
  MPI_Comm_remote_size(peers, &peer_count);
  for (int i = 0; i < kWords; ++i) {
    int word = i;
    for (int peer = 0; is_sender && peer < peer_count; ++peer) MPI_Send(&word, 1, MPI_INT, peer, i, peers);
    if (!is_sender) MPI_Recv(&word, 1, MPI_INT, 0, i, peers, MPI_STATUS_IGNORE);
    if (word != i) {
      printf("check_disconnect: word %d is %d\n", i, word);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = atoi(argv[1]);
  for (int i = 0; i < kMostPeers * kMessages; ++i) {
    sent[i] = malloc(kLongest);
    received[i] = malloc(kLongest);
  }
  MPI_Comm family;
  MPI_Comm_get_parent(&family);
  const int is_parent = family == MPI_COMM_NULL;
  if (is_parent) {
    MPI_Comm_spawn(argv[0], argv + 1, kMostPeers, MPI_INFO_NULL, 0, MPI_COMM_SELF, &family, MPI_ERRCODES_IGNORE);
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int round = 0; round < rounds; ++round) {
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm peers;
    if (is_parent) {
      MPI_Open_port(MPI_INFO_NULL, port);
      MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, round, family);
      MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &peers);
      MPI_Close_port(port);
      exchange(peers, 0, 1, round);
    } else {
      if (rank == 0) {
        MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, round, family, MPI_STATUS_IGNORE);
      }
      MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &peers);
      exchange(peers, 1 + rank, 0, round);
    }
    say_last_words(peers, is_parent);
    MPI_Comm_disconnect(&peers);
  }
  MPI_Comm_disconnect(&family);
  if (is_parent) {
    printf("check_disconnect: %d rounds\n", rounds);
  }
  MPI_Finalize();
  return 0;
}
