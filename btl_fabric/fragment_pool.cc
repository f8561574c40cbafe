// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/fragment_pool.h"

#include <sys/resource.h>

#include "btl_fabric/packet_header.h"

namespace fabric {

namespace {

/// The registration cache's record of one memory region.
struct Registration : mca_rcache_base_registration_t {
  ibv_mr* mr;
};

/// Called by the cache. Memory is only read and written by this host's own work requests; what is only sent from may be
/// read-only.
int register_region(void* pd, void* base, size_t size, mca_rcache_base_registration_t* registration) noexcept {
  const bool written = (registration->access_flags & MCA_RCACHE_ACCESS_LOCAL_WRITE) != 0;
  ibv_mr* mr = ibv_reg_mr(static_cast<ibv_pd*>(pd), base, size, written ? IBV_ACCESS_LOCAL_WRITE : 0);
  static_cast<Registration*>(registration)->mr = mr;
  return mr != nullptr ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}

int deregister_region(void* /*pd*/, mca_rcache_base_registration_t* registration) noexcept {
  auto* ours = static_cast<Registration*>(registration);
  if (ours->mr != nullptr && ibv_dereg_mr(ours->mr) != 0) {
    return OPAL_ERROR;
  }
  ours->mr = nullptr;
  return OPAL_SUCCESS;
}

}  // namespace

static OBJ_CLASS_INSTANCE(Fragment, mca_btl_base_descriptor_t, nullptr, nullptr);

Result<std::unique_ptr<RegistrationCache>> RegistrationCache::make(std::shared_ptr<OpenDevice> device) {
  std::unique_ptr<RegistrationCache> cache(new RegistrationCache(std::move(device)));
  std::string name = "fabric." + cache->device_->name;
  mca_rcache_base_resources_t resources{};
  resources.cache_name = name.data();
  resources.reg_data = cache->device_->pd.get();
  resources.sizeof_reg = sizeof(Registration);
  resources.register_mem = register_region;
  resources.deregister_mem = deregister_region;
  cache->rcache_ = mca_rcache_base_module_create("grdma", cache->device_.get(), &resources);
  if (cache->rcache_ == nullptr) {
    return failure("Open MPI has no registration cache \"grdma\"");
  }
  return cache;
}

RegistrationCache::~RegistrationCache() {
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
  lkey = static_cast<const Registration*>(registration)->mr->lkey;
  return registration;
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
  const auto& pool = *static_cast<const FragmentPool*>(context);
  auto* fragment = static_cast<Fragment*>(static_cast<void*>(item));
  const ibv_mr* mr = static_cast<const Registration*>(item->registration)->mr;

  fragment->packet = static_cast<std::byte*>(item->ptr);
  fragment->capacity = pool.capacity_;
  fragment->lkey = mr->lkey;
  fragment->queue = pool.queue_;
  fragment->is_receive = pool.receives_;
  fragment->callback_due = false;
  fragment->slots = 0;
  fragment->endpoint = nullptr;
  fragment->posted_on = nullptr;
  fragment->next = nullptr;
  fragment->user_memory = nullptr;
  fragment->segments[0].seg_addr.pval = fragment->packet + PacketHeader::kSize;
  fragment->segments[0].seg_len = pool.capacity_;
  fragment->des_segments = fragment->segments;
  fragment->des_segment_count = 1;
  fragment->order = pool.queue_;

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
