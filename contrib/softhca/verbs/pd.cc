// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <mutex>
#include <vector>

#include "fabric/of_member.h"
#include "verbs/call.h"
#include "verbs/parent_domain.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// The protection domains of this process, for who knows their numbers.
struct Domains {
  std::mutex mutex;
  std::vector<Pd*> all;
};
Domains& domains() {
  return of_member<Domains>();
}

}  // namespace

Pd* hold_domain(uint32_t handle, const std::function<bool(const Pd&)>& is_it) {
  std::lock_guard guard(domains().mutex);
  for (Pd* pd : domains().all)
    if (pd->handle == handle && is_it(*pd)) {
      pd->users.fetch_add(1);
      return pd;
    }
  return nullptr;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_alloc_pd")) return fail(error);
  static std::atomic<uint32_t> next_id{0};
  auto pd = make<Pd>();
  if (pd == nullptr) return fail(ENOMEM);
  do pd->id = next_id.fetch_add(1, std::memory_order_relaxed) + 1;
  while (pd->id == 0);
  pd->context = context;
  pd->handle = pd->id;
  try {
    std::lock_guard guard(domains().mutex);
    domains().all.push_back(pd.get());
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  owner.objects.fetch_add(1);
  return pd.release();
}

SOFTHCA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (const int error = in_child(pd->context)) return error;
  auto* mine = static_cast<Pd*>(pd);
  if (mine->imported != nullptr) return EINVAL;
  if (mine->users.load() != 0) drop_domain(nullptr);
  {
    std::lock_guard guard(domains().mutex);
    if (mine->users.load() != 0) return EBUSY;
    std::erase(domains().all, mine);
  }
  Context::of(pd->context)->objects.fetch_sub(1);
  if (ParentDomain* parent = parent_domain(pd); parent != nullptr)
    release(*parent);
  else
    delete mine;
  return 0;
}
