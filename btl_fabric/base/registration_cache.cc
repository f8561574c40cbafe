// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/registration_cache.h"

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/heap_hook.h"

namespace fabric {

namespace {

/// What peers read stays until they say that they have. If that took all there is on both sides, neither could read: so it is told
/// apart from what is written to.
RegionUse use_of(const mca_rcache_base_registration_t& registration) noexcept {
  if ((registration.flags & MCA_RCACHE_FLAGS_CACHE_BYPASS) != 0) {
    return (registration.flags & kRegistrationForReceives) != 0 ? RegionUse::kReceives : RegionUse::kSends;
  }
  constexpr auto kWritten =
      MCA_RCACHE_ACCESS_LOCAL_WRITE | MCA_RCACHE_ACCESS_REMOTE_WRITE | MCA_RCACHE_ACCESS_REMOTE_ATOMIC;
  return (registration.access_flags & kWritten) != 0 ? RegionUse::kSinks : RegionUse::kSources;
}

}  // namespace

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
  ours->access = access_flags(roles, cache.transport_, cache.reads_by_windows_);
  ours->use = use_of(*registration);
  // Open MPI's cache deregisters something that nobody uses, and tries again: try_take() is enough.
  if (!cache.budget_.try_take(ours->use)) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ours->mr = ibv_reg_mr(cache.device_->pd.get(), base, size, static_cast<int>(ours->access));
  if (ours->mr == nullptr) {
    cache.budget_.give_back(ours->use);
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
    cache.budget_.give_back(ours->use);
  }
  ours->mr = nullptr;
  gives_away(ours);
  return OPAL_SUCCESS;
}

/// What it keeps registered only because somebody may want it again.
bool RegistrationCache::evict() noexcept {
  return rcache_ != nullptr && rcache_->rcache_evict(rcache_);
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
                                                                   Transport transport, const Grant& regions) {
  std::unique_ptr<RegistrationCache> cache(new RegistrationCache(std::move(device), transport, regions));
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
  cache->handshakes_ = std::make_unique<cpc::HandshakeSlab>(cache->device_->pd.get(), &cache->budget_);
  return cache;
}

DeviceRdma& RegistrationCache::rdma(unsigned context, const MrPoolHints& hints) {
  while (rdma_.size() <= context) {
    rdma_.push_back(std::make_unique<DeviceRdma>(device_->pd.get(), hints, &budget_));
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

BufferSource RegistrationCache::buffers() const {
  return {mca_mpool_base_module_lookup(nullptr), rcache_, device_->name};
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

}  // namespace fabric
