// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "fabric/of_member.h"
#include "verbs/call.h"
#include "verbs/memory_region.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr uint64_t kUnit = 4;  // bytes: offsets and lengths of copies are multiples
constexpr uint32_t kMostLogAlign = 12;
constexpr unsigned kAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE;

// Of all devices of this process.
std::atomic<uint64_t> allocated{0};

struct Memories {
  std::mutex mutex;
  std::vector<Dm*> all;
};
Memories& memories() {
  return of_member<Memories>();
}

bool inside(const Dm& dm, uint64_t offset, uint64_t length) {
  return offset <= dm.length && length <= dm.length - offset;
}

// Where a copy goes; nullptr: not there.
uint8_t* place(ibv_dm* dm, uint64_t offset, size_t length) {
  auto& mine = *static_cast<Dm*>(dm);
  const bool fits = offset % kUnit == 0 && length % kUnit == 0 && inside(mine, offset, length);
  return fits ? mine.bytes + offset : nullptr;
}

int copy_in(ibv_dm* dm, uint64_t offset, const void* from, size_t length) {
  uint8_t* to = place(dm, offset, length);
  if (to == nullptr) return EINVAL;
  std::memcpy(to, from, length);
  return 0;
}

int copy_out(void* to, ibv_dm* dm, uint64_t offset, size_t length) {
  const uint8_t* from = place(dm, offset, length);
  if (from == nullptr) return EINVAL;
  std::memcpy(to, from, length);
  return 0;
}

bool remember(Dm& dm) {
  try {
    std::lock_guard guard(memories().mutex);
    memories().all.push_back(&dm);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool reserve(uint64_t bytes) {
  uint64_t before = allocated.load(std::memory_order_relaxed);
  do
    if (bytes > kDeviceMemoryBytes - before) return false;
  while (!allocated.compare_exchange_weak(before, before + bytes));
  return true;
}

}  // namespace

// It needs no place in the fabric: a child may have some, as with hardware.
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  static std::atomic<uint32_t> next_handle{0};
  Context& owner = *Context::of(context);
  if (owner.fatal.load(std::memory_order_relaxed)) return fail(EIO);
  if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > kMostLogAlign) return fail(EINVAL);
  if (attr->length > kDeviceMemoryBytes || !reserve(attr->length)) return fail(ENOMEM);
  void* bytes = mmap(nullptr, attr->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto dm = bytes != MAP_FAILED ? make<Dm>() : nullptr;
  if (dm == nullptr || !remember(*dm)) {
    if (bytes != MAP_FAILED) munmap(bytes, attr->length);
    allocated.fetch_sub(attr->length);
    return fail(ENOMEM);
  }
  dm->context = context;
  dm->memcpy_to_dm = copy_in;
  dm->memcpy_from_dm = copy_out;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = next_handle.fetch_add(1, std::memory_order_relaxed) + 1;
  dm->bytes = static_cast<uint8_t*>(bytes);
  dm->length = attr->length;
  owner.objects.fetch_add(1);
  return dm.release();
}

int free_dm(ibv_dm* dm) {
  auto* mine = static_cast<Dm*>(dm);
  if (mine->imported != nullptr) return EINVAL;
  {
    std::lock_guard guard(memories().mutex);
    if (mine->users.load() != 0) return EBUSY;
    std::erase(memories().all, mine);
  }
  munmap(mine->bytes, mine->length);
  allocated.fetch_sub(mine->length);
  Context::of(dm->context)->objects.fetch_sub(1);
  delete mine;
  return 0;
}

ibv_dm* another_handle(ibv_context* context, uint32_t handle, const std::function<bool(const Dm&)>& is_it) {
  auto dm = make<Dm>();
  if (dm == nullptr) return fail(ENOMEM);
  std::lock_guard guard(memories().mutex);
  for (Dm* one : memories().all) {
    if (one->handle != handle || !is_it(*one)) continue;
    static_cast<ibv_dm&>(*dm) = *one;
    dm->context = context;
    dm->bytes = one->bytes;
    dm->length = one->length;
    dm->imported = one;
    one->users.fetch_add(1);
    Context::of(context)->objects.fetch_add(1);
    return dm.release();
  }
  return fail(EINVAL);
}

void drop_handle(ibv_dm* dm) {
  auto* mine = static_cast<Dm*>(dm);
  mine->imported->users.fetch_sub(1);
  Context::of(dm->context)->objects.fetch_sub(1);
  delete mine;
}

// The kernel wants regions of it to begin at address zero, since it has no other.
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  if (const int error = cannot_use(*Context::of(pd->context))) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_reg_mr")) return fail(error);
  auto& mine = *static_cast<Dm*>(dm);
  if (dm->context->device != pd->context->device || !inside(mine, offset, length)) return fail(EINVAL);
  if ((access & ~kAccess) != 0 || (access & IBV_ACCESS_ZERO_BASED) == 0 || !writes_at_home(access)) return fail(EINVAL);
  Mr* mr = make_region(pd, reinterpret_cast<uint64_t>(mine.bytes + offset), length, 0, access);
  if (mr == nullptr) return nullptr;
  mr->device_memory = mine.imported != nullptr ? mine.imported : &mine;
  mr->device_memory->users.fetch_add(1);
  return mr;
}

}  // namespace softhca
