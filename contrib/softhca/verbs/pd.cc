// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/call.h"
#include "verbs/parent_domain.h"

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
  owner.objects.fetch_add(1);
  return pd.release();
}

SOFTHCA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (const int error = in_child()) return error;
  auto* mine = static_cast<Pd*>(pd);
  if (mine->users.load() != 0) return EBUSY;
  Context::of(pd->context)->objects.fetch_sub(1);
  if (ParentDomain* parent = parent_domain(pd); parent != nullptr)
    release(*parent);
  else
    delete mine;
  return 0;
}
