// SPDX-License-Identifier: BSD-3-Clause
// Memory windows: entries of the key table that lie inside a region's. One that is not bound has no key in its entry.
#include <infiniband/verbs.h>

#include <algorithm>
#include <vector>

#include "fabric/of_member.h"
#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/memory_region.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// The windows of this process. `mutex` also makes binding and the end of a region exclude each other.
struct Windows {
  std::mutex mutex;
  std::vector<Mw*> all;
};
Windows& windows() {
  return of_member<Windows>();
}

constexpr unsigned kNeedLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// Local write access means nothing for a window, whose key is of no use in a local SGE (but for the sink of a read on iWARP). Adapters ignore it: programs give it.
constexpr unsigned kWindowAccess =
    kNeedLocalWrite | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;

// The window is bound no longer, and its region does not count it. `mutex` is held.
void unbind(Slot& self, MrEntry& window) {
  if (window.region != 0) self.mrs[window.region].windows.fetch_sub(1, std::memory_order_relaxed);
  window.region = 0;
}

// Whether a window of this process is bound to the region. `mutex` is held.
bool has_windows(Slot& self, uint32_t region) {
  const std::atomic<uint32_t>& bound = self.mrs[region].windows;
  if (bound.load(std::memory_order_relaxed) == 0) return false;
  // A window that a peer has invalidated is still counted.
  for (const Mw* mw : windows().all)
    if (MrEntry& entry = self.mrs[mw->index]; entry.region == region && entry.key.load(std::memory_order_acquire) == 0)
      unbind(self, entry);
  return bound.load(std::memory_order_relaxed) != 0;
}

}  // namespace

bool clear_key(uint32_t region) {
  std::lock_guard guard(windows().mutex);
  Slot& self = Fabric::get()->self();
  if (has_windows(self, region)) return false;
  self.mrs[region].key.store(0, std::memory_order_seq_cst);
  return true;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  Context& context = *Context::of(pd->context);
  if (const int error = cannot_use(context)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_alloc_mw")) return fail(error);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
  auto mw = make<Mw>();
  const uint32_t key = mw != nullptr ? allocate_key(KeyOf::kWindow, limits_of(context).max_mw) : 0;
  if (key == 0) return fail(ENOMEM);
  mw->index = key >> 8;
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = key;
  mw->handle = mw->index;
  mw->type = type;
  try {
    std::lock_guard guard(windows().mutex);
    windows().all.push_back(mw.get());
  } catch (const std::bad_alloc&) {
    release_key(KeyOf::kWindow, mw->index);
    return fail(ENOMEM);
  }
  static_cast<Pd*>(pd)->users.fetch_add(1);
  return mw.release();
}

int dealloc_mw(ibv_mw* mw) {
  if (const int error = in_child(mw->context)) return error;
  auto* mine = static_cast<Mw*>(mw);
  Slot& self = Fabric::get()->self();
  MrEntry& entry = self.mrs[mine->index];
  {
    std::lock_guard guard(windows().mutex);
    std::erase(windows().all, mine);
    entry.key.store(0, std::memory_order_seq_cst);
    quiesce(entry);
    unbind(self, entry);
  }
  release_key(KeyOf::kWindow, mine->index);
  static_cast<Pd*>(mw->pd)->users.fetch_sub(1);
  delete mine;
  return 0;
}

int bind_window(Qp& qp, const SendEntry& request) {
  std::lock_guard guard(windows().mutex);
  Slot& self = Fabric::get()->self();
  if (std::find(windows().all.begin(), windows().all.end(), request.mw) == windows().all.end())
    return IBV_WC_MW_BIND_ERR;
  const Mw& mw = *static_cast<Mw*>(request.mw);
  const uint32_t pd = qp.shared->pd;
  MrEntry& entry = self.mrs[mw.index];
  if (request.mw_rkey >> 8 != mw.index || static_cast<Pd*>(mw.pd)->id != pd) return IBV_WC_MW_BIND_ERR;
  const bool bound = entry.key.load(std::memory_order_acquire) != 0;
  // A type 2 window has to be invalidated before it can be bound again, and cannot be bound to nothing.
  if (mw.type == IBV_MW_TYPE_2 && (bound || request.bind.length == 0)) return IBV_WC_MW_BIND_ERR;

  uint32_t region = 0;
  uint64_t addr = 0;
  if (request.bind.length != 0) {
    // The caller's ibv_mr may be gone already; what its key stands for decides (SendEntry::rkey, set when it was posted).
    const MrEntry& whole = entry_of_key(self, request.rkey);
    // A file's region has addresses of its own, and its windows have these.
    const uint64_t offset = request.bind.addr - (whole.iova != 0 ? whole.iova : whole.addr);
    if (request.rkey == 0 || whole.key.load(std::memory_order_acquire) != request.rkey || whole.region != 0 ||
        whole.pd != pd || (whole.access & IBV_ACCESS_MW_BIND) == 0 || offset > whole.length ||
        request.bind.length > whole.length - offset || (request.bind.mw_access_flags & ~kWindowAccess) != 0)
      return IBV_WC_MW_BIND_ERR;
    if ((request.bind.mw_access_flags & kNeedLocalWrite) != 0 && (whole.access & IBV_ACCESS_LOCAL_WRITE) == 0)
      return IBV_WC_MW_BIND_ERR;
    region = request.rkey >> 8;
    addr = whole.addr + offset;
  }
  if (bound) {
    entry.key.store(0, std::memory_order_seq_cst);
    quiesce(entry);
  }
  unbind(self, entry);
  if (request.bind.length == 0) return IBV_WC_SUCCESS;
  entry.pd = pd;
  entry.access = request.bind.mw_access_flags;
  entry.qpn = mw.type == IBV_MW_TYPE_2 ? qp.base()->qp_num : 0;
  entry.iova = (request.bind.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : request.bind.addr;
  entry.length = request.bind.length;
  entry.addr = addr;
  entry.users.store(0, std::memory_order_relaxed);
  entry.region = region;
  self.mrs[region].windows.fetch_add(1, std::memory_order_relaxed);
  entry.key.store(request.mw_rkey, std::memory_order_seq_cst);
  return IBV_WC_SUCCESS;
}

int invalidate_key(Slot& slot, uint32_t pd, uint32_t qpn, uint32_t key) {
  MrEntry& entry = entry_of_key(slot, key);
  if (key == 0 || entry.key.load(std::memory_order_acquire) != key) return EINVAL;
  // Only type 2 windows can be invalidated: they have a QP.
  if (entry.qpn == 0 || entry.qpn != qpn || entry.pd != pd) return EINVAL;
  return entry.key.compare_exchange_strong(key, 0) ? 0 : EINVAL;
}

int invalidate_own_key(const Qp& qp, uint32_t key) {
  std::lock_guard guard(windows().mutex);
  Slot& self = Fabric::get()->self();
  if (const int error = invalidate_key(self, qp.shared->pd, qp.qp_base.qp_num, key)) return error;
  MrEntry& entry = entry_of_key(self, key);
  quiesce(entry);
  unbind(self, entry);
  return 0;
}

}  // namespace softhca
