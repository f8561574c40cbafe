// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/region_cache.h"

#include <algorithm>

#include "btl_fabric/base/cache_guard.h"
#include "btl_fabric/base/heap_hook.h"

namespace fabric {

namespace {

/// Each handle has the key of its own device first.
void exchange_keys(Registration& registration) noexcept {
  for (DeviceMemory& own : registration.memory) {
    std::size_t place = 0;
    own.handle.registration = &registration;
    own.handle.others = {};
    for (const DeviceMemory& other : registration.memory) {
      if (own.mr != nullptr && &other != &own && other.mr != nullptr) {
        own.handle.others[place++] = other.handle.home;
      }
    }
  }
}

RegionUse use_of_region(const mca_rcache_base_registration_t& registration) noexcept {
  if ((registration.flags & MCA_RCACHE_FLAGS_CACHE_BYPASS) != 0) {
    return (registration.flags & kRegistrationForReceives) != 0 ? RegionUse::kReceives : RegionUse::kSends;
  }
  return use_of(registration.access_flags);
}

}  // namespace

RegionUse use_of(std::int32_t access) noexcept {
  if ((access & (MCA_RCACHE_ACCESS_REMOTE_READ | MCA_RCACHE_ACCESS_REMOTE_ATOMIC)) != 0) {
    return RegionUse::kSources;
  }
  const bool only_peers =
      (access & MCA_RCACHE_ACCESS_REMOTE_WRITE) != 0 && (access & MCA_RCACHE_ACCESS_LOCAL_WRITE) == 0;
  return only_peers ? RegionUse::kSinks : RegionUse::kOperations;
}

/// Called by Open MPI's cache. Message buffers, which bypass it, are only read and written by this host's own requests;
/// everything else for what it was asked for.
int RegionCache::register_region(void* context, void* base, size_t size,
                                 mca_rcache_base_registration_t* registration) noexcept {
  if (in_forked_child) {
    return OPAL_ERR_NOT_AVAILABLE;
  }
  auto& cache = *static_cast<RegionCache*>(context);
  auto* ours = static_cast<Registration*>(registration);
  takes_over(ours);
  const bool is_buffer = (registration->flags & MCA_RCACHE_FLAGS_CACHE_BYPASS) != 0;
  MemoryRoles roles =
      is_buffer ? MemoryRole::kSendSource | MemoryRole::kReceiveSink : roles_of(registration->access_flags);
  if ((registration->flags & kRegistrationIsPolled) != 0) {
    roles |= MemoryRole::kPolledSink;
  }
  if (!cache.register_with_all(*ours, base, size, roles, use_of_region(*registration))) {
    // The one makes Open MPI's cache give up what nobody uses, until there is nothing, for the sake of the region. An accelerator's memory
    // can do without one.
    return (registration->flags & kRegistrationOnAccelerator) != 0 ? OPAL_ERR_NOT_AVAILABLE : OPAL_ERR_OUT_OF_RESOURCE;
  }
  cache.list(*ours);
  gives_away(ours);
  return OPAL_SUCCESS;
}

bool RegionCache::register_with_all(Registration& registration, void* base, std::size_t size, MemoryRoles roles,
                                    RegionUse use) noexcept {
  // What other devices than that of the message that follows have written is read back: see RdmaOperation::reads_back.
  if (devices_.size() > 1 && roles.has(MemoryRole::kWriteSink)) {
    roles |= MemoryRole::kReadSource;
  }
  bool some = false;
  registration.memory = {};
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    some = devices_[i]->register_region(registration.memory[i], base, size, roles, use) || some;
  }
  exchange_keys(registration);
  return some;
}

/// False if a device refuses.
bool RegionCache::deregister(Registration& registration) noexcept {
  const auto is_registered = [](const DeviceMemory& one) { return one.mr != nullptr; };
  if (std::none_of(registration.memory.begin(), registration.memory.end(), is_registered)) {
    return true;  // the destructor has been here
  }
  bool all = true;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    all = devices_[i]->deregister_region(registration.memory[i]) && all;
  }
  if (all) {
    unlist(registration);
  }
  return all;
}

int RegionCache::deregister_region(void* context, mca_rcache_base_registration_t* registration) noexcept {
  if (in_forked_child) {
    return OPAL_SUCCESS;
  }
  auto* ours = static_cast<Registration*>(registration);
  takes_over(ours);
  auto& cache = *static_cast<RegionCache*>(context);
  if (!cache.deregister(*ours)) {
    return OPAL_ERROR;
  }
  gives_away(ours);
  return OPAL_SUCCESS;
}

void RegionCache::list(Registration& registration) noexcept {
  const std::lock_guard guard(list_mutex_);
  registration.newer = nullptr;
  registration.older = newest_;
  if (newest_ != nullptr) {
    newest_->newer = &registration;
  }
  newest_ = &registration;
}

void RegionCache::unlist(const Registration& registration) noexcept {
  const std::lock_guard guard(list_mutex_);
  (registration.newer != nullptr ? registration.newer->older : newest_) = registration.older;
  if (registration.older != nullptr) {
    registration.older->newer = registration.newer;
  }
}

Result<std::unique_ptr<RegionCache>> RegionCache::make(std::string name, std::vector<MemoryDevice*> devices) {
  std::unique_ptr<RegionCache> cache(new RegionCache(std::move(devices)));
  mca_rcache_base_resources_t resources{};
  resources.cache_name = name.data();
  resources.reg_data = cache.get();
  resources.sizeof_reg = sizeof(Registration);
  resources.register_mem = register_region;
  resources.deregister_mem = deregister_region;
  cache->rcache_ = mca_rcache_base_module_create("grdma", cache.get(), &resources);
  if (cache->rcache_ == nullptr) {
    return failure("Open MPI has no registration cache \"grdma\"");
  }
  guard_cache(*cache->rcache_);
  hook_heap();
  return cache;
}

/// Open MPI's cache forgets, without deregistering them, regions that somebody still holds: whoever calls MPI_Finalize when
/// its peer has read a message, but before the peer's word of that has arrived.
RegionCache::~RegionCache() {
  while (newest_ != nullptr && deregister_region(this, newest_) == OPAL_SUCCESS) {
  }
  if (rcache_ != nullptr) {
    unguard_cache(*rcache_);
    mca_rcache_base_module_destroy(rcache_);
  }
}

Registration* RegionCache::hold(void* base, std::size_t size, std::int32_t access, std::uint32_t flags) const noexcept {
  mca_rcache_base_registration_t* registration = nullptr;
  if (rcache_->rcache_register(rcache_, base, size, flags, access, &registration) != OPAL_SUCCESS) {
    return nullptr;
  }
  takes_over(registration);
  auto* const ours = static_cast<Registration*>(registration);
  if (use_of(access) == RegionUse::kSinks && !becomes_sink(*ours)) {
    let_go(registration);
    return nullptr;
  }
  return ours;
}

/// What was registered for operations of this process's own, and is for peers to write to now, must not take the regions of such
/// operations. It stays a sink.
bool RegionCache::becomes_sink(Registration& registration) const noexcept {
  bool all = true;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    DeviceMemory& memory = registration.memory[i];
    all = (memory.mr == nullptr || devices_[i]->becomes_sink(memory)) && all;
  }
  return all;
}

}  // namespace fabric
