// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/parent_domain.h"

#include <unistd.h>

#include "verbs/call.h"
#include "verbs/verbs_ops.h"

namespace softhca {

ParentDomain* parent_domain(ibv_pd* pd) {
  auto* mine = static_cast<Pd*>(pd);
  return mine->is_parent ? static_cast<ParentDomain*>(mine) : nullptr;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (attr->comp_mask != 0) return fail(EINVAL);
  auto td = make<Td>();
  if (td == nullptr) return fail(ENOMEM);
  td->context = context;
  owner.objects.fetch_add(1);
  return td.release();
}

int dealloc_td(ibv_td* td) {
  if (const int error = in_child(td->context)) return error;
  auto* mine = static_cast<Td*>(td);
  if (mine->users.load() != 0) return EBUSY;
  Context::of(td->context)->objects.fetch_sub(1);
  delete mine;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t kMasks = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (attr->pd == nullptr || attr->pd->context != context || parent_domain(attr->pd) != nullptr) return fail(EINVAL);
  if ((attr->comp_mask & ~kMasks) != 0 || (attr->td != nullptr && attr->td->context != context)) return fail(EINVAL);
  const bool own_memory = (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (own_memory && (attr->alloc == nullptr || attr->free == nullptr)) return fail(EINVAL);
  auto domain = make<ParentDomain>();
  if (domain == nullptr) return fail(ENOMEM);
  domain->context = context;
  domain->inside = static_cast<Pd*>(attr->pd);
  domain->id = domain->inside->id;
  domain->handle = domain->inside->handle;
  domain->is_parent = true;
  domain->thread = static_cast<Td*>(attr->td);
  if (own_memory) {
    domain->alloc = attr->alloc;
    domain->free = attr->free;
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) domain->pd_context = attr->pd_context;
  domain->inside->users.fetch_add(1);
  if (domain->thread != nullptr) domain->thread->users.fetch_add(1);
  owner.objects.fetch_add(1);
  return domain.release();
}

void release(ParentDomain& domain) {
  domain.inside->users.fetch_sub(1);
  if (domain.thread != nullptr) domain.thread->users.fetch_sub(1);
  delete &domain;
}

void* allocate_from(ibv_pd* pd, size_t bytes) {
  ParentDomain* domain = parent_domain(pd);
  errno = 0;
  if (domain == nullptr || domain->alloc == nullptr) return nullptr;
  void* memory =
      domain->alloc(domain, domain->pd_context, bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)), kSendQueueMemory);
  errno = memory == nullptr ? ENOMEM : 0;
  return memory != IBV_ALLOCATOR_USE_DEFAULT ? memory : nullptr;
}

void give_back(ibv_pd* pd, void* memory) {
  if (memory == nullptr) return;
  ParentDomain* domain = parent_domain(pd);
  domain->free(domain, domain->pd_context, memory, kSendQueueMemory);
}

}  // namespace softhca
