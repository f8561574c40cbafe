// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/fragment_pool.h"

#include <sys/resource.h>

#include <algorithm>

#include "btl_fabric/base/packet_header.h"
#include "common/accounting/region_budget.h"
#include "cpc/queue_pairs/queue_memory.h"

namespace fabric {

static OBJ_CLASS_INSTANCE(Fragment, mca_btl_base_descriptor_t, nullptr, nullptr);

FragmentPool::FragmentPool(std::uint8_t queue, bool receives, std::uint32_t capacity, int limit) noexcept
    : queue_(queue), receives_(receives), capacity_(capacity), limit_(std::max(limit, 0)) {
  OBJ_CONSTRUCT(&list_, opal_free_list_t);
}

FragmentPool::~FragmentPool() {
  OBJ_DESTRUCT(&list_);
}

Result<std::unique_ptr<FragmentPool>> FragmentPool::make(const BufferSource& source, std::uint8_t queue, bool receives,
                                                         std::uint32_t capacity, const PoolSizes& sizes) {
  constexpr size_t kAlignment = cpc::kBufferAlignment;
  static_assert(sizeof(Fragment) <= cpc::kFragmentBytes && PacketHeader::kSize == cpc::kHandshakeBytes);
  static_assert(sizeof(Registration) + sizeof(ibv_mr) <= cpc::kRegistrationBytes);
  std::unique_ptr<FragmentPool> pool(new FragmentPool(queue, receives, capacity, sizes.limit));
  const int rc =
      opal_free_list_init(&pool->list_, sizeof(Fragment), opal_cache_line_size, OBJ_CLASS(Fragment),
                          PacketHeader::kSize + capacity, kAlignment, sizes.initial, sizes.limit, sizes.increment,
                          source.memory, MCA_RCACHE_FLAGS_CACHE_BYPASS | (receives ? kRegistrationForReceives : 0),
                          source.registrations, init_fragment, pool.get());
  if (rc != OPAL_SUCCESS) {
    return failure("memory for messages of " + std::to_string(capacity) + " bytes cannot be registered with " +
                   source.device + "; " + memlock_hint());
  }
  return pool;
}

Fragment* FragmentPool::get_spare() noexcept {
  std::uintptr_t found = spare_;
  if (!Spare::is_wanted_of(*this) || found == kOut || !spare_.compare_exchange_strong(found, kOut)) {
    return nullptr;
  }
  if (found != kUnmade) {
    return reinterpret_cast<Fragment*>(found);
  }
  Fragment* const made = make_spare();
  if (made == nullptr) {
    spare_ = kUnmade;
  }
  return made;
}

/// Nobody else makes one meanwhile: the list's own lock.
Fragment* FragmentPool::make_spare() noexcept {
  opal_free_list_item_t* made = nullptr;
  opal_mutex_lock(&list_.fl_lock);
  ++list_.fl_max_to_alloc;
  (void)opal_free_list_grow_st(&list_, 1, &made);
  if (made == nullptr) {
    --list_.fl_max_to_alloc;
  }
  opal_mutex_unlock(&list_.fl_lock);
  return static_cast<Fragment*>(static_cast<void*>(made));
}

static thread_local const FragmentPool::Spare* innermost_spare = nullptr;

[[gnu::cold]] void FragmentPool::Spare::begin() noexcept {
  outer_ = innermost_spare;
  innermost_spare = this;
}

[[gnu::cold]] void FragmentPool::Spare::end() noexcept {
  innermost_spare = outer_;
}

[[gnu::cold]] bool FragmentPool::Spare::is_wanted_of(const FragmentPool& pool) noexcept {
  for (const Spare* one = innermost_spare; one != nullptr; one = one->outer_) {
    if (&one->pool_ == &pool) {
      return true;
    }
  }
  return false;
}

int FragmentPool::init_fragment(opal_free_list_item_t* item, void* context) noexcept {
  auto& pool = *static_cast<FragmentPool*>(context);
  auto* fragment = static_cast<Fragment*>(static_cast<void*>(item));
  // The list fills whole pages, beyond its limit too, unless it is told that there is no more.
  if (pool.limit_ > 0 && pool.made_ == pool.list_.fl_max_to_alloc) {
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ++pool.made_;
  const ibv_mr* mr = static_cast<const Registration*>(item->registration)->memory.front().mr;

  fragment->pool = &pool;
  fragment->packet = static_cast<std::byte*>(item->ptr);
  fragment->lkey = mr->lkey;
  fragment->queue = pool.queue_;
  fragment->is_receive = pool.receives_;
  fragment->kind = PacketKind::kMessage;
  fragment->callback_due = false;
  fragment->detours = 0;
  fragment->parts = nullptr;
  fragment->carried = 0;
  fragment->posted_on = nullptr;
  fragment->made_before = pool.newest_.load(std::memory_order_relaxed);
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
  pool.newest_.store(fragment, std::memory_order_release);
  return OPAL_SUCCESS;
}

std::string memlock_hint() {
  if (regions_at_limit > 0) {
    return "this process's part of the device's memory regions was in use (--mca btl_base_verbose 10 tells how many that are)";
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "the limit of locked memory is not the reason (ulimit -l is unlimited)";
  }
  return "this process may lock " + std::to_string(limit.rlim_cur / 1024) + " KiB of memory: raise ulimit -l";
}

}  // namespace fabric
