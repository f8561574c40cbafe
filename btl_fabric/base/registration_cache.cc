// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/registration_cache.h"

#include <cerrno>
#include <cstring>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/device_memory.h"
#include "btl_fabric/base/dmabuf.h"
#include "btl_fabric/base/params.h"

namespace fabric {

bool RegistrationCache::register_region(DeviceMemory& memory, void* base, std::size_t size, MemoryRoles roles,
                                        RegionUse use) noexcept {
  if (is_lost()) {
    const bool is_for_peers = use == RegionUse::kSources || use == RegionUse::kSinks;
    memory.use = use;
    memory.access = 0;
    memory.mr = is_for_peers ? nullptr : &no_region_;
    return !is_for_peers;
  }
  // Open MPI's cache deregisters something that nobody uses, and tries again: try_take() is enough.
  if (!budget_.try_take(use)) {
    return false;
  }
  memory.use = use;
  const bool is_users = use != RegionUse::kSends && use != RegionUse::kReceives;
  memory.access = as_wished(access_flags(roles, transport_, reads_by_windows_), roles, is_users, wishes_);
  if (is_on_device(base)) [[unlikely]] {
    memory.access &= ~static_cast<unsigned>(IBV_ACCESS_ON_DEMAND);
    memory.mr = register_on_device(base, size, memory.access);
  } else {
    memory.mr = ibv_reg_mr(device_->pd.get(), base, size, static_cast<int>(memory.access));
  }
  if (memory.mr == nullptr && (memory.access & IBV_ACCESS_ON_DEMAND) != 0) {
    // Not all memory can be had on demand: that of other devices and huge pages depend on the driver.
    memory.access &= ~static_cast<unsigned>(IBV_ACCESS_ON_DEMAND);
    memory.mr = ibv_reg_mr(device_->pd.get(), base, size, static_cast<int>(memory.access));
  }
  if (memory.mr == nullptr) {
    budget_.give_back(use);
    return false;
  }
  ++registrations;
  memory.handle.home = {memory.mr->rkey, first_port_, ports_, static_cast<std::uint8_t>(atomics_by_device_ ? 1 : 0), 0};
  if (roles.has(MemoryRole::kAtomicTarget)) {
    try {
      const auto first = reinterpret_cast<std::uintptr_t>(base);
      atomic_targets_.add(memory.mr->rkey, first, first + size - 1);
    } catch (...) {
      (void)deregister_region(memory);
      return false;
    }
  }
  return true;
}

bool RegistrationCache::lose_device() noexcept {
  if (is_lost_.exchange(true)) {
    return false;
  }
  for (const auto& rdma : rdma_) {
    rdma->verbs.lose_device();
  }
  return true;
}

bool RegistrationCache::deregister_region(DeviceMemory& memory) noexcept {
  if (memory.mr == nullptr || memory.mr == &no_region_) {
    memory.mr = nullptr;
    return true;
  }
  atomic_targets_.remove(memory.mr->rkey, reinterpret_cast<std::uintptr_t>(memory.mr->addr));
  if (ibv_dereg_mr(memory.mr) != 0 && !is_lost()) {
    return false;
  }
  budget_.give_back(memory.use);
  memory.mr = nullptr;
  return true;
}

bool RegistrationCache::becomes_sink(DeviceMemory& memory) noexcept {
  return budget_.become_sink(memory.use);
}

/// What is kept registered only because somebody may want it again.
bool RegistrationCache::evict() noexcept {
  return (own_ != nullptr && own_->evict()) || (shared_ != nullptr && shared_->evict());
}

Result<std::unique_ptr<RegistrationCache>> RegistrationCache::make(std::shared_ptr<OpenDevice> device,
                                                                   Transport transport, const Grant& regions,
                                                                   const AccessWishes& wishes) {
  std::unique_ptr<RegistrationCache> cache(new RegistrationCache(std::move(device), transport, regions, wishes));
  auto own = RegionCache::make("fabric." + cache->device_->name, {cache.get()});
  if (!own) {
    return tl::unexpected(own.error());
  }
  cache->own_ = std::move(*own);
  cache->handshakes_ = std::make_unique<cpc::HandshakeSlab>(cache->device_->pd.get(), &cache->budget_);
  return cache;
}

Result<std::unique_ptr<RegionCache>> RegistrationCache::share_large(const std::vector<RegistrationCache*>& caches,
                                                                    std::size_t least) {
  std::string name = "fabric";
  std::vector<MemoryDevice*> devices;
  for (RegistrationCache* cache : caches) {
    name += "." + cache->device_->name;
    devices.push_back(cache);
  }
  auto shared = RegionCache::make(std::move(name), std::move(devices));
  for (RegistrationCache* cache : caches) {
    cache->shared_ = shared ? shared->get() : nullptr;
    cache->shared_least_ = least;
  }
  return shared;
}

DeviceRdma& RegistrationCache::rdma(unsigned context, const MrPoolHints& hints) {
  while (rdma_.size() <= context) {
    rdma_.push_back(std::make_unique<DeviceRdma>(device_->pd.get(), hints, &budget_));
    rdma_.back()->verbs.set_wishes(wishes_);
  }
  return *rdma_[context];
}

BufferSource RegistrationCache::buffers() const {
  return {mca_mpool_base_module_lookup(nullptr), own_->records(), device_->name};
}

mca_rcache_base_registration_t* RegistrationCache::hold(void* base, std::size_t size,
                                                        std::uint32_t& lkey) const noexcept {
  constexpr std::int32_t kSendOnly = 0;
  Registration* const registration = own_->hold(base, size, kSendOnly);
  if (registration != nullptr) {
    lkey = registration->memory.front().mr->lkey;
  }
  return registration;
}

mca_btl_base_registration_handle_t* RegistrationCache::hold_handle(void* base, std::size_t size,
                                                                   std::int32_t access) const noexcept {
  if (is_on_device(base)) [[unlikely]] {
    return hold_on_device(base, size, access);
  }
  if (shared_ != nullptr && size >= shared_least_) {
    if (mca_btl_base_registration_handle_t* const handle = hold_with_all(base, size, access); handle != nullptr) {
      return handle;
    }
  }
  Registration* const registration = own_->hold(base, size, access);
  if (registration != nullptr) {
    return &registration->memory.front().handle;
  }
  if (shared_ != nullptr && size < shared_least_ && is_gone()) {
    return hold_with_all(base, size, access);
  }
  // Without any handle ob1 tries again a few times, and then sends a copy; but its receiver does not always go on then.
  const bool can_wait = use_of(access) == RegionUse::kOperations && !budget_.has(RegionUse::kOperations);
  return can_wait ? &unregistered_handle : nullptr;
}

/// The handle of this device for memory that is registered with all of them. If it is gone, that of another one, which then takes what
/// is asked of this one.
mca_btl_base_registration_handle_t* RegistrationCache::hold_with_all(void* base, std::size_t size,
                                                                     std::int32_t access) const noexcept {
  Registration* const registration = shared_->hold(base, size, access);
  if (registration == nullptr) {
    return nullptr;
  }
  if (DeviceMemory* const memory = registration->with(device_->pd.get()); memory != nullptr) {
    return &memory->handle;
  }
  if (DeviceMemory* const other = is_gone() ? registration->with_any() : nullptr; other != nullptr) {
    return &other->handle;
  }
  fabric::let_go(registration);
  return nullptr;
}

/// Verbs says so, if nobody has been told yet.
bool RegistrationCache::is_gone() const noexcept {
  ibv_device_attr attributes;
  return is_lost() || ibv_query_device(device_->context.get(), &attributes) == EIO;
}

/// Not for atomics, and so no window: this process's processor may have to execute them, and osc/rdma looks at windows by itself.
mca_btl_base_registration_handle_t* RegistrationCache::hold_on_device(void* base, std::size_t size,
                                                                      std::int32_t access) const noexcept {
  if (params().device_memory_direct != 0 && has_dmabuf_.load(std::memory_order_relaxed) &&
      (access & MCA_RCACHE_ACCESS_REMOTE_ATOMIC) == 0) {
    Registration* const registration = own_->hold(base, size, access, kRegistrationOnAccelerator);
    if (registration != nullptr) {
      return &registration->memory.front().handle;
    }
  }
  return use_of(access) == RegionUse::kOperations ? &staged_handle : nullptr;
}

/// What cannot be is not tried again.
ibv_mr* RegistrationCache::register_on_device(void* base, std::size_t size, unsigned access) noexcept {
  ibv_mr* const mr = register_dmabuf(device_->pd.get(), base, size, access);
  if (mr == nullptr && errno == EOPNOTSUPP && has_dmabuf_.exchange(false)) {
    opal_output_verbose(5, opal_btl_base_framework.framework_output,
                        "btl:fabric: the memory of the accelerator (%s) cannot be registered with %s: data go through "
                        "buffers, as without btl_fabric_device_memory_direct",
                        accelerator_name(), device_->name.c_str());
  }
  return mr;
}

void RegistrationCache::let_go(mca_btl_base_registration_handle_t* handle) noexcept {
  if (Registration* const registration = registration_of(handle); registration != &unregistered) {
    fabric::let_go(registration);
  }
}

}  // namespace fabric
