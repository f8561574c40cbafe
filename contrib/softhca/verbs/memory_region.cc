// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/memory_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "fabric/of_member.h"
#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/device_memory.h"
#include "verbs/index_pool.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace softhca {
namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                             IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

struct Keys {
  // Processes begin at different keys, so that one process's key is seldom good in another.
  IndexPool<kMrsPerSlot> pool{1 + Fabric::get()->slot() % 64 * 64};
  // How many of a kind there are: windows take none of the regions that the device promises.
  std::atomic<int> regions{0};
  std::atomic<int> windows{0};
};
IndexPool<kMrsPerSlot>& keys() {
  return of_member<Keys>().pool;
}
std::atomic<int>& keys_of(KeyOf kind) {
  Keys& all = of_member<Keys>();
  return kind == KeyOf::kRegion ? all.regions : all.windows;
}

// The checks that the kernel makes before it pins memory. It looks at every page; here the first and the last must do. Memory on
// demand need not be there yet.
int check_range(uint64_t addr, uint64_t length, uint64_t iova, unsigned access) {
  if (length == 0 || addr + length < addr || iova + length < iova) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  return mapped(addr) && mapped(addr + length - 1) ? 0 : EFAULT;
}

int check_access(unsigned access) {
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((access & ~kAccess) != 0) return EINVAL;
  if (!writes_at_home(access)) return EINVAL;
  // No window is bound to memory on demand, as with mlx5.
  const bool can = Fabric::get()->config().odp && (access & IBV_ACCESS_MW_BIND) == 0;
  return (access & IBV_ACCESS_ON_DEMAND) != 0 && !can ? EOPNOTSUPP : 0;
}

ibv_mr* register_memory(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  Context& context = *Context::of(pd->context);
  if (const int error = cannot_use(context)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_reg_mr")) return fail(error);
  if (const int error = check_access(access)) return fail(error);
  const auto addr = reinterpret_cast<uint64_t>(address);
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  if (const int error = check_range(addr, length, iova, access)) return fail(error);
  Mr* mr = make_region(pd, addr, length, iova, access);
  if (mr != nullptr) mr->addr = address;
  return mr;
}

uint64_t page_size() {
  static const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Any file does that can be mapped, such as a memfd: a dma-buf's memory is a device's, and there is none here.
ibv_mr* register_file(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, unsigned access) {
  const uint64_t in_page = offset & (page_size() - 1);
  if (length == 0 || offset + length < offset || in_page != (iova & (page_size() - 1))) return fail(EINVAL);
  if ((access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED)) != 0) return fail(EOPNOTSUPP);
  if (const int error = SOFTHCA_FAULTY("ibv_reg_dmabuf_mr")) return fail(error);
  const size_t bytes = in_page + length;
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset - in_page));
  if (mapping == MAP_FAILED) return fail(errno);
  ibv_mr* mr = register_memory(pd, static_cast<char*>(mapping) + in_page, length, iova, access);
  if (mr == nullptr) {
    const int error = errno;
    munmap(mapping, bytes);
    return fail(error);
  }
  mr->addr = reinterpret_cast<void*>(offset);  // as libibverbs has it
  static_cast<Mr*>(mr)->mapping = mapping;
  static_cast<Mr*>(mr)->mapped_bytes = bytes;
  return mr;
}

}  // namespace

Mr* make_region(ibv_pd* pd, uint64_t addr, size_t length, uint64_t iova, unsigned access) {
  auto mr = make<Mr>();
  const uint32_t key = mr != nullptr ? allocate_key(KeyOf::kRegion, limits_of(*Context::of(pd->context)).max_mr) : 0;
  if (key == 0) return fail(ENOMEM);
  MrEntry& entry = entry_of_key(Fabric::get()->self(), key);
  entry.pd = static_cast<Pd*>(pd)->id;
  entry.access = access;
  entry.qpn = 0;
  entry.region = 0;
  entry.iova = iova;
  entry.length = length;
  entry.addr = addr;
  entry.users.store(0, std::memory_order_relaxed);
  entry.key.store(key, std::memory_order_seq_cst);

  static_cast<Pd*>(pd)->users.fetch_add(1);
  mr->index = key >> 8;
  mr->context = pd->context;
  mr->pd = pd;
  mr->length = length;
  mr->handle = mr->index;
  mr->lkey = key;
  mr->rkey = key;
  return mr.release();
}

uint32_t allocate_key(KeyOf kind, int limit) {
  static std::atomic<uint32_t> variant{0};
  if (keys_of(kind).fetch_add(1) >= limit) {
    keys_of(kind).fetch_sub(1);
    return 0;
  }
  const unsigned index = keys().allocate(kMrsPerSlot);
  if (index == 0) {
    keys_of(kind).fetch_sub(1);
    return 0;
  }
  if (!Fabric::get()->commit(&Fabric::get()->self().mrs[index], sizeof(MrEntry))) {
    release_key(kind, index);
    return 0;
  }
  return index << 8 | (variant.fetch_add(1, std::memory_order_relaxed) & 0xff);
}

bool mapped(uint64_t addr) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(addr & ~(page_size() - 1)), page_size(), &resident) == 0;
}

void release_key(KeyOf kind, uint32_t index) {
  keys().release(index);
  keys_of(kind).fetch_sub(1);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return register_memory(pd, addr, length, reinterpret_cast<uint64_t>(addr), static_cast<unsigned>(access));
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_memory(pd, addr, length, iova, static_cast<unsigned>(access));
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return register_memory(pd, addr, length, iova, access);
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                         int access) {
  return register_file(pd, offset, length, iova, fd, static_cast<unsigned>(access));
}

// The region keeps its keys. While it changes they are not valid; on an error it stays as it was.
SOFTHCA_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  const auto refuse = [](int error) {
    errno = error;
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  if (const int error = cannot_use(*Context::of(mr->context))) return refuse(error);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return refuse(EINVAL);
  if (changes_pd && (pd == nullptr || pd->context != mr->context)) return refuse(EINVAL);
  if (changes_access)
    if (const int error = check_access(static_cast<unsigned>(access))) return refuse(error);
  const auto where = reinterpret_cast<uint64_t>(addr);
  auto* mine = static_cast<Mr*>(mr);
  const unsigned flags_then =
      changes_access ? static_cast<unsigned>(access) : Fabric::get()->self().mrs[mine->index].access;
  if (moves)
    if (const int error = check_range(where, length, where, flags_then)) return refuse(error);
  if (mine->device_memory != nullptr || mine->imported) return refuse(EOPNOTSUPP);
  if (!clear_key(mine->index)) return refuse(EBUSY);

  MrEntry& entry = Fabric::get()->self().mrs[mine->index];
  quiesce(entry);
  settle_landings(entry);
  // MrEntry::users stays: who has found the key before may note himself just now, and use it when it holds again.
  if (moves) {
    entry.addr = where;
    entry.length = length;
    mr->addr = addr;
    mr->length = length;
  }
  if (changes_access) entry.access = static_cast<uint32_t>(access);
  if (moves) entry.iova = (entry.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : entry.addr;
  if (changes_pd) {
    static_cast<Pd*>(mr->pd)->users.fetch_sub(1);
    static_cast<Pd*>(pd)->users.fetch_add(1);
    entry.pd = static_cast<Pd*>(pd)->id;
    mr->pd = pd;
  }
  entry.key.store(mr->lkey, std::memory_order_seq_cst);
  return 0;
}

SOFTHCA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  if (const int error = in_child(mr->context)) return error;
  auto* mine = static_cast<Mr*>(mr);
  if (mine->imported) return EINVAL;
  if (!clear_key(mine->index)) return EBUSY;
  MrEntry& entry = Fabric::get()->self().mrs[mine->index];
  quiesce(entry);
  settle_landings(entry);
  release_key(KeyOf::kRegion, mine->index);
  static_cast<Pd*>(mr->pd)->users.fetch_sub(1);
  if (mine->mapping != nullptr) munmap(mine->mapping, mine->mapped_bytes);
  if (mine->device_memory != nullptr) mine->device_memory->users.fetch_sub(1);
  delete mine;
  return 0;
}
