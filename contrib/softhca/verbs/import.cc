// SPDX-License-Identifier: BSD-3-Clause
// A second context of a device, and second handles of what the first has (ibv_import_device(3)): for parts of one process that
// know nothing of each other but a descriptor and numbers. A context's cmd_fd is a file by which it is recognized.
//
// What is imported is destroyed by who made it: a handle only goes away.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "fabric/of_member.h"
#include "verbs/call.h"
#include "verbs/device_memory.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// Handles that were given back while queue pairs still used them, as pyverbs does: they go when nothing uses them.
struct Unused {
  std::mutex mutex;
  std::vector<Pd*> domains;
};

struct Search {
  const struct stat& file;
  Device* found;
};

bool same_file(const Context& a, const Context& b) {
  return a.file == b.file;
}

}  // namespace

void drop_domain(Pd* handle) {
  auto& unused = of_member<Unused>();
  std::lock_guard guard(unused.mutex);
  try {
    if (handle != nullptr) unused.domains.push_back(handle);
  } catch (const std::bad_alloc&) {  // then it stays
  }
  std::erase_if(unused.domains, [](Pd* pd) {
    if (pd->users.load() != 0) return false;
    pd->imported->users.fetch_sub(1);
    Context::of(pd->context)->objects.fetch_sub(1);
    delete pd;
    return true;
  });
}

}  // namespace softhca

using namespace softhca;

// The descriptor is the new context's from now on. That of another process is of no use: its objects are not here.
SOFTHCA_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  struct stat file {};
  if (Fabric::get() == nullptr) return fail(EPERM);
  if (fstat(cmd_fd, &file) != 0) return fail(EBADF);
  Search search{file, nullptr};
  for_each_context(
      [](Context& context, void* argument) {
        auto& wanted = *static_cast<Search*>(argument);
        if (context.file == wanted.file.st_ino && context.file_system == wanted.file.st_dev)
          wanted.found = context.device;
      },
      &search);
  if (search.found == nullptr) return fail(EINVAL);
  try {
    return make_context(*search.found, cmd_fd);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

SOFTHCA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  auto pd = make<Pd>();
  if (pd == nullptr) return fail(ENOMEM);
  // It is held, so that it stays while it has other handles.
  Pd* whole = hold_domain(handle, [&](const Pd& one) { return same_file(*Context::of(one.context), owner); });
  if (whole == nullptr) return fail(EINVAL);
  pd->context = context;
  pd->handle = handle;
  pd->id = whole->id;
  pd->imported = whole;
  owner.objects.fetch_add(1);
  return pd.release();
}

SOFTHCA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  if (in_child(pd->context) == 0) drop_domain(static_cast<Pd*>(pd));
}

SOFTHCA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  if (const int error = cannot_use(*Context::of(pd->context))) return fail(error);
  if (handle == 0 || handle >= kMrsPerSlot) return fail(EINVAL);
  const MrEntry& entry = Fabric::get()->self().mrs[handle];
  const uint32_t key = entry.key.load(std::memory_order_acquire);
  if (key == 0 || entry.region != 0 || entry.pd != static_cast<Pd*>(pd)->id) return fail(EINVAL);
  auto mr = make<Mr>();
  if (mr == nullptr) return fail(ENOMEM);
  mr->context = pd->context;
  mr->pd = pd;
  mr->handle = mr->index = handle;
  mr->length = entry.length;
  mr->lkey = mr->rkey = key;
  mr->imported = true;
  static_cast<Pd*>(pd)->users.fetch_add(1);
  return mr.release();
}

SOFTHCA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  if (in_child(mr->context) != 0) return;
  static_cast<Pd*>(mr->pd)->users.fetch_sub(1);
  delete static_cast<Mr*>(mr);
}

SOFTHCA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  return another_handle(context, handle, [&](const Dm& one) { return same_file(*Context::of(one.context), owner); });
}

SOFTHCA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  drop_handle(dm);
}
