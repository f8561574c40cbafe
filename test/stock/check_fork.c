/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_fork: processes of an MPI job have children, and communicate on.
 *   check_fork HOW [thread]
 * HOW says what makes a child, and how it ends:
 *   exec     fork(), and the child runs another program
 *   exit     fork(), and the child calls exit(), which runs the exit handlers
 *            that libraries have registered in the parent
 *   _exit    fork(), and the child calls _exit()
 *   system   system()
 *   popen    popen()
 *   outlives fork(), and the child, which has copies of all descriptors, ends
 *            after MPI_Finalize of its parent
 * With "thread" another thread makes the child, not the one that uses MPI.
 * A child is made before the first message, with messages under way, and when
 * all connections are there. After each, every rank exchanges messages and
 * one-sided operations with all others, and checks what it gets.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS = 7 };

static const int sizes[] = {8, 5000, 300000};
enum { KINDS = sizeof sizes / sizeof *sizes };

static int rank, size, by_thread, exchanges;
static const char* how;
static char* memory; /* which no message uses: parent and child have their own */
static int from_parent[2];
static int outliving;

static void fail(const char* what, int a, int b) {
  fprintf(stderr, "check_fork: rank %d: %s (%d, %d)\n", rank, what, a, b);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static unsigned char byte_of(int round, int from, int to, int i) {
  unsigned x = (unsigned)(round * 7919 + from * 104729 + to * 1299709 + i);
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return (unsigned char)(x ^ (x >> 12));
}

/* ---- children */

static void run_child(void) {
  memory[0] = 'c';
  if (strcmp(how, "exec") == 0) {
    execl("/bin/sh", "sh", "-c", "exit 7", (char*)NULL);
    _exit(1);
  }
  if (strcmp(how, "exit") == 0) exit(STATUS);
  if (strcmp(how, "outlives") == 0) {
    char byte;
    close(from_parent[1]);
    while (read(from_parent[0], &byte, 1) > 0) continue; /* ends when the parent closes its end */
  }
  _exit(STATUS);
}

static void have_child_by_fork(void) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) fail("fork() has failed", 0, 0);
  if (child == 0) run_child();
  if (strcmp(how, "outlives") == 0) {
    ++outliving;
    return;
  }
  if (waitpid(child, &status, 0) != child) fail("waitpid() has failed", 0, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS) fail("a child has ended in another way: status", status, 0);
}

static void* have_child(void* unused) {
  (void)unused;
  memory[0] = 'p';
  if (strcmp(how, "system") == 0) {
    int status = system("exit 7");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS) fail("system() gives another status", status, 0);
  } else if (strcmp(how, "popen") == 0) {
    char line[16] = "";
    FILE* pipe = popen("echo 42", "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL) fail("popen() gives nothing to read", 0, 0);
    if (atoi(line) != 42) fail("popen() gives something else", atoi(line), 0);
    int status = pclose(pipe);
    if (status != 0) fail("pclose() gives another status", status, 0);
  } else {
    have_child_by_fork();
  }
  if (memory[0] != 'p') fail("a child has written into its parent's memory", memory[0], 0);
  return NULL;
}

static void make_child(void) {
  pthread_t thread;
  if (!by_thread)
    have_child(NULL);
  else if (pthread_create(&thread, NULL, have_child, NULL) != 0 || pthread_join(thread, NULL) != 0)
    fail("there is no thread to be had", 0, 0);
}

/* ---- what the parents do */

static unsigned char* new_memory(int n) {
  unsigned char* bytes = malloc((size_t)n);
  if (bytes == NULL) fail("there is no memory", n, 0);
  return bytes;
}

/* A message of each size from each to each; a child is made while they are under way, if it is to be. */
static void exchange(int round, int with_child) {
  int count = 0, all = size * KINDS;
  unsigned char** out = malloc((size_t)all * sizeof *out);
  unsigned char** in = malloc((size_t)all * sizeof *in);
  MPI_Request* requests = malloc((size_t)all * 2 * sizeof *requests);
  if (out == NULL || in == NULL || requests == NULL) fail("there is no memory", all, 0);
  for (int peer = 0; peer < size; peer++)
    for (int k = 0; k < KINDS; k++, count++) {
      out[count] = new_memory(sizes[k]);
      in[count] = new_memory(sizes[k]);
      for (int i = 0; i < sizes[k]; i++) out[count][i] = byte_of(round, rank, peer, i);
      MPI_Irecv(in[count], sizes[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &requests[2 * count]);
      MPI_Isend(out[count], sizes[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &requests[2 * count + 1]);
    }
  if (with_child) make_child();
  MPI_Waitall(2 * all, requests, MPI_STATUSES_IGNORE);
  count = 0;
  for (int peer = 0; peer < size; peer++)
    for (int k = 0; k < KINDS; k++, count++) {
      for (int i = 0; i < sizes[k]; i++)
        if (in[count][i] != byte_of(round, peer, rank, i))
          fail("a message has other contents: size, offset", sizes[k], i);
      free(in[count]);
      free(out[count]);
    }
  free(in);
  free(out);
  free(requests);
  exchanges++;
}

/* Collectives, and one-sided: each writes to the next, reads from the one before, and adds to a counter of rank 0. */
static void collect(int round) {
  enum { WORDS = 1000 };
  int mine = rank + round, sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size * (size - 1) / 2 + size * round) fail("MPI_Allreduce gives another sum", sum, round);

  MPI_Win window;
  int *words, put[WORDS], got[WORDS], one = 1, before = 0;
  int next = (rank + 1) % size, last = (rank + size - 1) % size;
  MPI_Win_allocate((2 * WORDS + 1) * (MPI_Aint)sizeof *words, (int)sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words,
                   &window);
  words[2 * WORDS] = 0;
  for (int i = 0; i < WORDS; i++) {
    words[i] = 0;
    words[WORDS + i] = round * 1000000 + rank * 10000 + i;
    put[i] = words[WORDS + i];
  }
  MPI_Win_fence(0, window);
  MPI_Put(put, WORDS, MPI_INT, next, 0, WORDS, MPI_INT, window);
  MPI_Get(got, WORDS, MPI_INT, last, WORDS, WORDS, MPI_INT, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < WORDS; i++)
    if (words[i] != round * 1000000 + last * 10000 + i || got[i] != words[i])
      fail("a window has other contents: offset", i, words[i]);
  MPI_Win_lock_all(0, window);
  MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 2 * WORDS, MPI_SUM, window);
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && words[2 * WORDS] != size) fail("a counter has another value", words[2 * WORDS], size);
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  int provided;
  how = argc > 1 ? argv[1] : "exit";
  by_thread = argc > 2 && strcmp(argv[2], "thread") == 0;
  MPI_Init_thread(&argc, &argv, by_thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  memory = malloc(1 << 20);
  if (memory == NULL || pipe(from_parent) != 0) fail("there is no memory or pipe", 0, 0);

  make_child();
  exchange(0, 1);
  collect(1);
  make_child();
  exchange(2, 0);
  collect(3);
  make_child();
  exchange(4, 1);
  MPI_Finalize();
  close(from_parent[1]);
  for (; outliving > 0; --outliving) {
    int status;
    if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != STATUS) {
      fprintf(stderr, "check_fork: rank %d: a child has ended in another way\n", rank);
      return 1;
    }
  }
  if (rank == 0) printf("check_fork: %d exchanges\n", exchanges);
  return 0;
}
