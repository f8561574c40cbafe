// SPDX-License-Identifier: BSD-3-Clause
//
// Everybody talks to everybody, again and again, while one process makes TCP connections to whatever listens in the processes of the
// job, as a stranger: some go at once, some say garbage, and some are silent.
//   mpirun -np N check_strangers ATTEMPTS
// All processes must be on one host. Ends when there have been so many attempts; status 1 if a message is wrong.
#include <arpa/inet.h>
#include <dirent.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { tag = 5, silent_most = 400, ports_most = 4096, words = 50 };

static int rank, size, wanted;
static atomic_int attempts;
static unsigned short ports[ports_most];
static int port_count;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_strangers: rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// The port that listens on the IPv4 socket of that inode; 0: it does not.
static unsigned short port_of(unsigned long wanted_inode) {
  char line[512];
  unsigned short found = 0;
  FILE* table = fopen("/proc/net/tcp", "r");
  while (table != NULL && found == 0 && fgets(line, sizeof line, table) != NULL) {
    unsigned port, state;
    unsigned long inode;
    if (sscanf(line, " %*d: %*8x:%x %*8x:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state, &inode) == 3 && state == 10 &&
        inode == wanted_inode)
      found = (unsigned short)port;
  }
  if (table != NULL) fclose(table);
  return found;
}

static void add_ports_of(int process) {
  char folder[64], path[320], target[64];
  snprintf(folder, sizeof folder, "/proc/%d/fd", process);
  DIR* all = opendir(folder);
  if (all == NULL) fail("the processes are not on one host");
  for (struct dirent* entry; (entry = readdir(all)) != NULL;) {
    unsigned long inode;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    if (sscanf(target, "socket:[%lu]", &inode) != 1) continue;
    const unsigned short port = port_of(inode);
    if (port != 0 && port_count < ports_most) ports[port_count++] = port;
  }
  closedir(all);
}

static void* storm(void* unused) {
  static int silent[silent_most];
  char garbage[100] = {1};
  const struct linger at_once = {1, 0};  // a port that is closed is free again
  for (int i = 0; i < silent_most; i++) silent[i] = -1;
  for (int i = 0; i < wanted; i++, attempts++) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ports[i % port_count])};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stranger < 0 || connect(stranger, (struct sockaddr*)&to, sizeof to) != 0) fail("nobody listens any more");
    setsockopt(stranger, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (i % 3 == 0) (void)!send(stranger, garbage, sizeof garbage, MSG_NOSIGNAL);
    int* place = &silent[i / 3 % silent_most];
    if (i % 3 == 2) {
      if (*place >= 0) close(*place);
      *place = stranger;
    } else {
      close(stranger);
    }
  }
  for (int i = 0; i < silent_most; i++)
    if (silent[i] >= 0) close(silent[i]);
  return unused;
}

static void talk(int round) {
  int(*got)[words] = malloc((size_t)size * sizeof *got), (*sent)[words] = malloc((size_t)size * sizeof *sent);
  MPI_Request* requests = malloc((size_t)size * 2 * sizeof *requests);
  for (int peer = 0; peer < size; peer++) {
    for (int i = 0; i < words; i++) sent[peer][i] = rank * 7 + peer * 3 + round + i;
    MPI_Irecv(got[peer], words, MPI_INT, peer, tag, MPI_COMM_WORLD, &requests[peer]);
  }
  for (int peer = 0; peer < size; peer++)
    MPI_Isend(sent[peer], words, MPI_INT, peer, tag, MPI_COMM_WORLD, &requests[size + peer]);
  MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
  for (int peer = 0; peer < size; peer++)
    for (int i = 0; i < words; i++)
      if (got[peer][i] != peer * 7 + rank * 3 + round + i) fail("a message has other contents");
  free(got);
  free(sent);
  free(requests);
}

int main(int argc, char** argv) {
  int provided, round = 0, is_over = 0;
  pthread_t thread;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2) fail("usage: check_strangers ATTEMPTS");
  wanted = atoi(argv[1]);
  int self = (int)getpid(), *processes = malloc((size_t)size * sizeof *processes);
  MPI_Gather(&self, 1, MPI_INT, processes, 1, MPI_INT, 0, MPI_COMM_WORLD);  // connects few
  if (rank == 0) {
    for (int i = 0; i < size; i++) add_ports_of(processes[i]);
    if (port_count < size) fail("not every process listens");
    if (pthread_create(&thread, NULL, storm, NULL) != 0) fail("there is no thread");
  }
  for (; !is_over; round++) {
    talk(round);
    is_over = attempts == wanted;
    MPI_Bcast(&is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    pthread_join(thread, NULL);
    printf("check_strangers: %d attempts at %d ports, and all messages of %d rounds are right\n", wanted, port_count,
           round);
  }
  MPI_Finalize();
  return 0;
}
