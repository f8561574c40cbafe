// SPDX-License-Identifier: BSD-3-Clause
//
// Messages and one-sided operations of two processes from and to the memory of an accelerator:
//   mpirun -np 2 check_device_memory [--rma]
// The accelerator is a fake (fake_device.h): whatever touches its memory but mca_accelerator_fake.so dies, and so does what registers it
// with an RDMA device, but as a dma-buf. With NO_DMABUF in the environment there are none of these.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_device.h"

enum { memory_size = 64 << 20, most = 4 << 20, at_once = 24, piece = 512 << 10 };
static const int sizes[] = {1, 8, 200, 1000, 4096, 20000, 65536, 300001, 1 << 20, most};
enum { size_count = sizeof sizes / sizeof *sizes };

struct fake_device fake_device;
static int rank, peer;

static _Noreturn void fail(const char* what) {
  fprintf(stderr, "check_device_memory: %s\n", what);
  fflush(stderr);
  _Exit(1);
}

// --- What must not be registered. The component's calls come here: the program's symbols go before those of libraries.

#undef ibv_reg_mr
static void refuse(const void* address, size_t length) {
  const unsigned char* first = address;
  if (first < fake_device.base + fake_device.size && first + length > fake_device.base)
    fail("an accelerator's memory is registered as if it were the processor's");
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, int) = dlsym(RTLD_NEXT, "ibv_reg_mr");
  refuse(address, length);
  return next(pd, address, length, access);
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, uint64_t, unsigned) = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
  refuse(address, length);
  return next(pd, address, length, iova, access);
}

static unsigned dmabuf_regions;
struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  struct ibv_mr* (*next)(struct ibv_pd*, uint64_t, size_t, uint64_t, int, int) = dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr");
  struct ibv_mr* mr = next(pd, offset, length, iova, fd, access);
  if (mr != NULL) dmabuf_regions++;
  return mr;
}

// As CUDA's function of this name. A file has all of the memory, so that only all of it can be asked for.
static int device_file;
int cuMemGetHandleForAddressRange(void* handle, unsigned long long address, size_t size, int type,
                                  unsigned long long flags) {
  if (getenv("NO_DMABUF") != NULL) return 801;
  if (address != (uintptr_t)fake_device.base || size != fake_device.size || type != 1 || flags != 0)
    fail("a dma-buf of another memory is asked for");
  *(int*)handle = dup(device_file);
  return 0;
}

// --- Memory. A place is a buffer of the processor's or of the accelerator's, which has the same number of bytes.

static void make_device(void) {
  const int file = device_file = memfd_create("fake_device", 0);
  if (file < 0 || ftruncate(file, memory_size) != 0) fail("no memory");
  fake_device.base = mmap(NULL, memory_size, PROT_NONE, MAP_SHARED, file, 0);
  fake_device.view = mmap(NULL, memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  fake_device.size = memory_size;
  if (fake_device.base == MAP_FAILED || fake_device.view == MAP_FAILED) fail("no memory");
}

static unsigned char* host;  // as large as the accelerator's memory
static unsigned char* memory(int on_device) {
  return on_device ? fake_device.base : host;
}
static unsigned char* view(int on_device) {
  return on_device ? fake_device.view : host;
}

static void fill(unsigned char* bytes, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)((i * 7 + seed) ^ (i >> 8));
}
static void expect(const unsigned char* bytes, size_t count, unsigned seed, const char* what) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i] != (unsigned char)((i * 7 + seed) ^ (i >> 8))) {
      fprintf(stderr, "check_device_memory: rank %d: byte %zu of %zu is wrong\n", rank, i, count);
      fail(what);
    }
}

// --- Messages

// From one to the other and back, the sender's memory and the receiver's of either kind.
static void one_way(int sender, int from_device, int to_device, int size) {
  const unsigned seed = (unsigned)(size + 3 * sender + from_device);
  if (rank == sender) {
    fill(view(from_device), (size_t)size, seed);
    MPI_Send(memory(from_device), size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Ssend(memory(from_device), size, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
  } else {
    for (int tag = 1; tag <= 2; tag++) {
      memset(view(to_device), 0, (size_t)size + 1);
      MPI_Recv(memory(to_device), size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(view(to_device), (size_t)size, seed, "a message");
      if (view(to_device)[size] != 0) fail("a message is too long");
    }
  }
}

// Every other number of the sender's memory, into every third of the receiver's.
static void with_gaps(int from_device, int to_device, int size) {
  const int count = size / (int)sizeof(int32_t) / 4;
  MPI_Datatype out_type, in_type;
  if (count == 0) return;
  MPI_Type_vector(count, 1, 2, MPI_INT32_T, &out_type);
  MPI_Type_vector(count, 1, 3, MPI_INT32_T, &in_type);
  MPI_Type_commit(&out_type);
  MPI_Type_commit(&in_type);
  int32_t* out = (int32_t*)view(from_device);
  int32_t* in = (int32_t*)(view(to_device) + memory_size / 2);
  for (int i = 0; i < count; i++) out[2 * i] = i * 5 + rank;
  memset(in, 0, (size_t)count * 3 * sizeof *in);
  MPI_Sendrecv(memory(from_device), 1, out_type, peer, 3, memory(to_device) + memory_size / 2, 1, in_type, peer, 3,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < count; i++)
    if (in[3 * i] != i * 5 + peer || (i + 1 < count && in[3 * i + 1] != 0)) fail("a message with gaps");
  MPI_Type_free(&out_type);
  MPI_Type_free(&in_type);
}

// More at once, both ways, than there are buffers for.
static void many_at_once(int from_device, int to_device) {
  MPI_Request requests[2 * at_once];
  unsigned char* in = view(to_device) + memory_size / 2;
  memset(in, 0, (size_t)at_once * piece);
  for (int i = 0; i < at_once; i++) {
    MPI_Irecv(memory(to_device) + memory_size / 2 + (size_t)i * piece, piece, MPI_BYTE, peer, 10 + i, MPI_COMM_WORLD,
              &requests[i]);
    fill(view(from_device) + (size_t)i * piece, piece, (unsigned)(i + rank));
  }
  for (int i = 0; i < at_once; i++)
    MPI_Isend(memory(from_device) + (size_t)i * piece, piece, MPI_BYTE, peer, 10 + i, MPI_COMM_WORLD,
              &requests[at_once + i]);
  MPI_Waitall(2 * at_once, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < at_once; i++) expect(in + (size_t)i * piece, piece, (unsigned)(i + peer), "one of many messages");
}

static void messages(void) {
  for (int kinds = 0; kinds < 4; kinds++) {
    const int from_device = kinds & 1, to_device = kinds >> 1;
    for (int i = 0; i < size_count; i++) {
      one_way(0, from_device, to_device, sizes[i]);
      one_way(1, from_device, to_device, sizes[i]);
      with_gaps(from_device, to_device, sizes[i]);
    }
    many_at_once(from_device, to_device);
  }
}

// --- One-sided operations: what the origin writes from and reads into is the accelerator's, the target's memory is the processor's

static void put_and_get(MPI_Win win, const unsigned char* mine, int size) {
  const unsigned seed = (unsigned)(size + rank), from_peer = (unsigned)(size + peer);
  unsigned char* const back = fake_device.view + memory_size / 2;
  fill(fake_device.view, (size_t)size, seed);
  memset(back, 0, (size_t)size + 1);
  MPI_Win_fence(0, win);
  MPI_Put(fake_device.base, size, MPI_BYTE, peer, 0, size, MPI_BYTE, win);
  MPI_Win_fence(0, win);
  expect(mine, (size_t)size, from_peer, "MPI_Put");
  MPI_Get(fake_device.base + memory_size / 2, size, MPI_BYTE, peer, 0, size, MPI_BYTE, win);
  MPI_Win_fence(0, win);
  expect(back, (size_t)size, seed, "MPI_Get");
  if (back[size] != 0) fail("MPI_Get reads too much");
  // Passive, and several at once
  memset(back, 0, (size_t)size);
  MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win);
  for (int part = 0; part < 4; part++) {
    const int first = size / 4 * part, length = part < 3 ? size / 4 : size - first;
    MPI_Get(fake_device.base + memory_size / 2 + first, length, MPI_BYTE, peer, first, length, MPI_BYTE, win);
  }
  MPI_Win_flush(peer, win);
  expect(back, (size_t)size, seed, "several MPI_Get");
  MPI_Win_unlock(peer, win);
}

static void one_sided(void) {
  unsigned char* mine;
  MPI_Win win;
  MPI_Win_allocate(most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
  for (int i = 0; i < size_count; i++) put_and_get(win, mine, sizes[i]);
  MPI_Win_free(&win);
  // Nobody can reach an accelerator's memory: that is an error, and not a crash.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (MPI_Win_create(fake_device.base, most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS)
    fail("a window of an accelerator's memory is made");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// What the component says that it has staged.
static unsigned long long staged(void) {
  static const char wanted[] = "btl_fabric_rdma_staged";
  static MPI_T_pvar_session session;
  static MPI_T_pvar_handle handle;
  unsigned long long value = 0;
  int variables = 0, elements = 0;
  if (handle == NULL) {
    MPI_T_pvar_get_num(&variables);
    MPI_T_pvar_session_create(&session);
    for (int i = 0; i < variables && handle == NULL; i++) {
      char name[128], text[1024];
      int name_length = sizeof name, text_length = sizeof text, verbosity, class, bind, read_only, continuous, atomic;
      MPI_Datatype type;
      MPI_T_enum meanings;
      MPI_T_pvar_get_info(i, name, &name_length, &verbosity, &class, &type, &meanings, text, &text_length, &bind,
                          &read_only, &continuous, &atomic);
      if (strcmp(name, wanted) == 0) MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &elements);
    }
    if (handle == NULL) fail("btl_fabric_rdma_staged is no counter");
  }
  MPI_T_pvar_read(session, handle, &value);
  return value;
}

int main(int argc, char** argv) {
  const int rma = argc > 1 && strcmp(argv[1], "--rma") == 0;
  int provided, size;
  make_device();
  host = malloc(memory_size);
  if (host == NULL) fail("no memory");
  MPI_Init(&argc, &argv);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) fail("wants two processes");
  peer = 1 - rank;
  (void)staged();
  (rma ? one_sided : messages)();
  if (fake_device.copies == 0) fail("Open MPI has not asked for a copy: it does not know the accelerator");
  const unsigned long long mine = staged();
  unsigned long long all = 0;
  MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  const unsigned my_regions = dmabuf_regions;
  unsigned regions = 0;
  MPI_Reduce(&my_regions, &regions, 1, MPI_UNSIGNED, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("check_device_memory: %llu reads and writes staged, %u regions by dma-buf, all checks passed\n", all,
           regions);
  MPI_Finalize();
  return 0;
}
