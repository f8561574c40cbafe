/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How fast one process can write into another's memory: process_vm_writev(2) in a loop, what softhca's large messages
 * are made of. Usage: copy_speed BYTES COUNT. Prints MB/s (10^6), the best of five rounds. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  if (bytes == 0 || count <= 0) {
    fprintf(stderr, "usage: copy_speed BYTES COUNT\n");
    return 2;
  }
  /* Private memory at the same address in both. */
  char* buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  int ready[2];
  if (pipe(ready) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(buffer, 1, bytes);
    if (write(ready[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  memset(buffer, 2, bytes);
  char byte;
  if (child < 0 || read(ready[0], &byte, 1) != 1) return 1;

  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double start = now();
    for (int i = 0; i < count; ++i) {
      struct iovec local = {buffer, bytes}, remote = {buffer, bytes};
      if (process_vm_writev(child, &local, 1, &remote, 1, 0) != (ssize_t)bytes) {
        perror("process_vm_writev");
        kill(child, SIGKILL);
        return 1;
      }
    }
    const double speed = (double)bytes * count / (now() - start) / 1e6;
    if (speed > best) best = speed;
  }
  printf("%.1f\n", best);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return 0;
}
