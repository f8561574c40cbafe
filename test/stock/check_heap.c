// SPDX-License-Identifier: BSD-3-Clause
//
// Messages from memory that free() gives back to the system and malloc() gets anew, at the same address, in a process in which
// another library has patched sbrk(), as UCX's libucm does (on x86_64; elsewhere in one in which it has not):
//   mpirun -np 2 check_heap
// Each time the memory must be registered anew (by the component's counter), and the contents right.
#define _GNU_SOURCE
#include <malloc.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { size = 1 << 20, rounds = 200, enough = 20 };

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_heap: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

#ifdef __x86_64__

static void* foreign_sbrk(intptr_t increment) {
  char* old = (char*)syscall(SYS_brk, 0);
  void* const end = (void*)syscall(SYS_brk, old + increment);
  return end == old + increment ? old : (void*)-1;
}

static void patch_sbrk(void) {
  unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};  // mov $address, %r11; jmp *%r11
  const uintptr_t code = (uintptr_t)&sbrk, page = code & ~(uintptr_t)4095;
  void* (*to)(intptr_t) = foreign_sbrk;
  memcpy(jump + 2, &to, sizeof to);
  if (mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
    return;  // a system that forbids it forbids it to others too
  memcpy((void*)code, jump, sizeof jump);
  mprotect((void*)page, 8192, PROT_READ | PROT_EXEC);
}
#else
static void patch_sbrk(void) {}
#endif

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle;

static void find_counter(void) {
  int provided, variable, count;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS ||
      MPI_T_pvar_get_index("btl_fabric_registrations", MPI_T_PVAR_CLASS_COUNTER, &variable) != MPI_SUCCESS ||
      MPI_T_pvar_session_create(&session) != MPI_SUCCESS ||
      MPI_T_pvar_handle_alloc(session, variable, NULL, &handle, &count) != MPI_SUCCESS)
    fail("there is no counter of registrations");
}

static unsigned long long registrations(void) {
  unsigned long long value;
  if (MPI_T_pvar_read(session, handle, &value) != MPI_SUCCESS) fail("the counter cannot be read");
  return value;
}

static unsigned char byte_of(int round, int i) {
  return (unsigned char)(round * 31 + i * 7 + (i >> 12));
}

// A buffer that is the heap's end, with free memory before it, where MPI finds what it needs. What was free elsewhere is not
// any more.
static unsigned char* end_of_heap(void) {
  for (int tries = 0; tries < 100; tries++) {
    void* before = malloc(4 * size);
    unsigned char* buffer = malloc(size);
    if (before == NULL || buffer == NULL) break;
    if ((uintptr_t)sbrk(0) - (uintptr_t)buffer < 2 * size) {
      free(before);
      return buffer;
    }
  }
  fail("there is not enough memory, or the heap is in pieces");
}

// How often a buffer was where the one before it had been, which had been given back.
static int send_rounds(void) {
  int reused = 0, given_back = 0;
  uintptr_t last = 0;
  for (int round = 0; round < rounds; round++) {
    unsigned char* buffer = end_of_heap();
    for (int i = 0; i < size; i++) buffer[i] = byte_of(round, i);
    const unsigned long long before = registrations();
    MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // it has them all
    if (given_back && (uintptr_t)buffer == last) {
      reused++;
      if (registrations() == before) fail("memory that the system had taken back was still registered");
    }
    last = (uintptr_t)buffer;
    free(buffer);
    given_back = (uintptr_t)sbrk(0) < last + size;
  }
  return reused;
}

static void receive_rounds(void) {
  unsigned char* buffer = malloc(size);
  if (buffer == NULL) fail("there is not enough memory");
  for (int round = 0; round < rounds; round++) {
    MPI_Recv(buffer, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
      if (buffer[i] != byte_of(round, i)) fail("the contents of a message are wrong");
    MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
  }
  free(buffer);
}

int main(int argc, char** argv) {
  int rank;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // all of it from the heap
  mallopt(M_TRIM_THRESHOLD, 64 << 10);  // and back at once
  patch_sbrk();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  find_counter();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    const int reused = send_rounds();
    if (reused < enough) fail("memory came back too seldom for this to say anything");
    printf("check_heap: %d times registered anew\n", reused);
  } else {
    receive_rounds();
  }
  MPI_T_pvar_handle_free(session, &handle);
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
  MPI_Finalize();
  return 0;
}
