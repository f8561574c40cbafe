// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/fragment_pool.h"

#include <sys/resource.h>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/heap_hook.h"
#include "btl_fabric/base/packet_header.h"

namespace fabric {

static OBJ_CLASS_INSTANCE(Fragment, mca_btl_base_descriptor_t, nullptr, nullptr);

/// Called by the cache. Message buffers, which bypass it, are only read and written by this host's own requests;
/// everything else for what it was asked for.
int RegistrationCache::register_region(void* context, void* base, size_t size,
                                       mca_rcache_base_registration_t* registration) noexcept {
  if (in_forked_child) {
    return OPAL_ERR_NOT_AVAILABLE;
  }
  auto& cache = *static_cast<RegistrationCache*>(context);
  auto* ours = static_cast<Registration*>(registration);
  takes_over(ours);
  const bool is_buffer = (registration->flags & MCA_RCACHE_FLAGS_CACHE_BYPASS) != 0;
  const MemoryRoles roles =
      is_buffer ? MemoryRole::kSendSource | MemoryRole::kReceiveSink : roles_of(registration->access_flags);
  ours->access = access_flags(roles, cache.transport_);
  ours->mr = ibv_reg_mr(cache.device_->pd.get(), base, size, static_cast<int>(ours->access));
  if (ours->mr == nullptr) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ++registrations;
  cache.list(*ours);
  ours->handle = {{cache.ports_, ours->mr->rkey, cache.atomics_by_device_ ? 1U : 0U}, ours};
  if (roles.has(MemoryRole::kAtomicTarget)) {
    try {
      const auto first = reinterpret_cast<std::uintptr_t>(base);
      cache.atomic_targets_.add(ours->mr->rkey, first, first + size - 1);
    } catch (...) {
      (void)deregister_region(context, registration);
      return OPAL_ERR_OUT_OF_RESOURCE;
    }
  }
  gives_away(ours);
  return OPAL_SUCCESS;
}

int RegistrationCache::deregister_region(void* context, mca_rcache_base_registration_t* registration) noexcept {
  if (in_forked_child) {
    return OPAL_SUCCESS;
  }
  auto* ours = static_cast<Registration*>(registration);
  takes_over(ours);
  if (ours->mr != nullptr) {
    auto& cache = *static_cast<RegistrationCache*>(context);
    cache.atomic_targets_.remove(ours->mr->rkey, reinterpret_cast<std::uintptr_t>(ours->mr->addr));
    if (ibv_dereg_mr(ours->mr) != 0) {
      return OPAL_ERROR;
    }
    cache.unlist(*ours);
  }
  ours->mr = nullptr;
  gives_away(ours);
  return OPAL_SUCCESS;
}

void RegistrationCache::list(Registration& registration) noexcept {
  const std::lock_guard guard(list_mutex_);
  registration.newer = nullptr;
  registration.older = newest_;
  if (newest_ != nullptr) {
    newest_->newer = &registration;
  }
  newest_ = &registration;
}

void RegistrationCache::unlist(const Registration& registration) noexcept {
  const std::lock_guard guard(list_mutex_);
  (registration.newer != nullptr ? registration.newer->older : newest_) = registration.older;
  if (registration.older != nullptr) {
    registration.older->newer = registration.newer;
  }
}

Result<std::unique_ptr<RegistrationCache>> RegistrationCache::make(std::shared_ptr<OpenDevice> device,
                                                                   Transport transport) {
  std::unique_ptr<RegistrationCache> cache(new RegistrationCache(std::move(device), transport));
  std::string name = "fabric." + cache->device_->name;
  mca_rcache_base_resources_t resources{};
  resources.cache_name = name.data();
  resources.reg_data = cache.get();
  resources.sizeof_reg = sizeof(Registration);
  resources.register_mem = register_region;
  resources.deregister_mem = deregister_region;
  cache->rcache_ = mca_rcache_base_module_create("grdma", cache->device_.get(), &resources);
  if (cache->rcache_ == nullptr) {
    return failure("Open MPI has no registration cache \"grdma\"");
  }
  hook_heap();
  cache->handshakes_ = std::make_unique<cpc::HandshakeSlab>(cache->device_->pd.get());
  return cache;
}

DeviceRdma& RegistrationCache::rdma(unsigned context) {
  while (rdma_.size() <= context) {
    rdma_.push_back(std::make_unique<DeviceRdma>(device_->pd.get(), MrPoolHints{}));
  }
  return *rdma_[context];
}

/// Open MPI's cache forgets, without deregistering them, regions that somebody still holds: whoever calls MPI_Finalize when
/// its peer has read a message, but before the peer's word of that has arrived.
RegistrationCache::~RegistrationCache() {
  while (newest_ != nullptr && deregister_region(this, newest_) == OPAL_SUCCESS) {
  }
  if (rcache_ != nullptr) {
    mca_rcache_base_module_destroy(rcache_);
  }
}

mca_rcache_base_registration_t* RegistrationCache::hold(void* base, std::size_t size,
                                                        std::uint32_t& lkey) const noexcept {
  constexpr std::int32_t kSendOnly = 0;
  mca_rcache_base_registration_t* registration = nullptr;
  if (rcache_->rcache_register(rcache_, base, size, 0, kSendOnly, &registration) != OPAL_SUCCESS) {
    return nullptr;
  }
  takes_over(registration);
  lkey = static_cast<const Registration*>(registration)->mr->lkey;
  return registration;
}

mca_btl_base_registration_handle_t* RegistrationCache::hold_handle(void* base, std::size_t size,
                                                                   std::int32_t access) const noexcept {
  mca_rcache_base_registration_t* registration = nullptr;
  if (rcache_->rcache_register(rcache_, base, size, 0, access, &registration) != OPAL_SUCCESS) {
    return nullptr;
  }
  takes_over(registration);
  return &static_cast<Registration*>(registration)->handle;
}

FragmentPool::FragmentPool(std::uint8_t queue, bool receives, std::uint32_t capacity) noexcept
    : queue_(queue), receives_(receives), capacity_(capacity) {
  OBJ_CONSTRUCT(&list_, opal_free_list_t);
}

FragmentPool::~FragmentPool() {
  OBJ_DESTRUCT(&list_);
}

Result<std::unique_ptr<FragmentPool>> FragmentPool::make(const RegistrationCache& cache, std::uint8_t queue,
                                                         bool receives, std::uint32_t capacity,
                                                         const PoolSizes& sizes) {
  constexpr size_t kAlignment = 64;  // a cache line: no two buffers share one
  std::unique_ptr<FragmentPool> pool(new FragmentPool(queue, receives, capacity));
  mca_mpool_base_module_t* mpool = mca_mpool_base_module_lookup(nullptr);
  const int rc =
      opal_free_list_init(&pool->list_, sizeof(Fragment), opal_cache_line_size, OBJ_CLASS(Fragment),
                          PacketHeader::kSize + capacity, kAlignment, sizes.initial, sizes.limit, sizes.increment,
                          mpool, MCA_RCACHE_FLAGS_CACHE_BYPASS, cache.rcache(), init_fragment, pool.get());
  if (rc != OPAL_SUCCESS) {
    return failure("memory for messages of " + std::to_string(capacity) + " bytes cannot be registered with " +
                   cache.device().name + "; " + memlock_hint());
  }
  return pool;
}

int FragmentPool::init_fragment(opal_free_list_item_t* item, void* context) noexcept {
  auto& pool = *static_cast<FragmentPool*>(context);
  auto* fragment = static_cast<Fragment*>(static_cast<void*>(item));
  const ibv_mr* mr = static_cast<const Registration*>(item->registration)->mr;

  fragment->pool = &pool;
  fragment->packet = static_cast<std::byte*>(item->ptr);
  fragment->capacity = pool.capacity_;
  fragment->lkey = mr->lkey;
  fragment->queue = pool.queue_;
  fragment->is_receive = pool.receives_;
  fragment->kind = PacketKind::kMessage;
  fragment->callback_due = false;
  fragment->carried = 0;
  fragment->posted_on = nullptr;
  fragment->next = nullptr;
  fragment->user_memory = nullptr;
  fragment->segments[0].seg_addr.pval = fragment->packet + PacketHeader::kSize;
  fragment->segments[0].seg_len = pool.capacity_;
  fragment->des_segments = fragment->segments;
  fragment->des_segment_count = 1;
  fragment->order = MCA_BTL_NO_ORDER;

  fragment->receive_sge = {reinterpret_cast<std::uintptr_t>(fragment->packet),
                           static_cast<std::uint32_t>(PacketHeader::kSize) + pool.capacity_, mr->lkey};
  fragment->receive_request = {};
  fragment->receive_request.wr_id = reinterpret_cast<std::uintptr_t>(fragment);
  fragment->receive_request.sg_list = &fragment->receive_sge;
  fragment->receive_request.num_sge = 1;
  return OPAL_SUCCESS;
}

std::string memlock_hint() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "the limit of locked memory is not the reason (ulimit -l is unlimited)";
  }
  return "this process may lock " + std::to_string(limit.rlim_cur / 1024) + " KiB of memory: raise ulimit -l";
}

}  // namespace fabric
