// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/ring_memory.h"

#include <unistd.h>

#include <cassert>
#include <cstring>
#include <utility>

namespace fabric {

RingMemory::RingMemory(const BufferSource& source, const RingSizes& sizes) : source_(source), sizes_(sizes) {
  free_.reserve(sizes.rings);
}

RingMemory::~RingMemory() {
  assert(registration_ == nullptr || free_.size() == sizes_.rings);
  if (registration_ != nullptr) {
    let_go(registration_);
  }
  if (memory_ != nullptr) {
    source_.memory->mpool_free(source_.memory, memory_);
  }
}

/// Pages of their own: the cache registers whole ones, and a peer can write to all that is registered.
bool RingMemory::allocate() noexcept {
  const auto page = static_cast<std::size_t>(getpagesize());
  const std::size_t bytes = (sizes_.rings * sizes_.bytes() + page - 1) / page * page;
  memory_ = source_.memory->mpool_alloc(source_.memory, bytes, page, 0);
  if (memory_ == nullptr) {
    return false;
  }
  mca_rcache_base_module_t& cache = *source_.registrations;
  if (cache.rcache_register(&cache, memory_, bytes, kRegistrationIsPolled,
                            MCA_RCACHE_ACCESS_LOCAL_WRITE | MCA_RCACHE_ACCESS_REMOTE_WRITE,
                            &registration_) != OPAL_SUCCESS) {
    registration_ = nullptr;
    source_.memory->mpool_free(source_.memory, std::exchange(memory_, nullptr));
    return false;
  }
  takes_over(registration_);
  for (std::uint32_t i = 0; i < sizes_.rings; ++i) {
    free_.push_back(static_cast<std::byte*>(memory_) + i * sizes_.bytes());
  }
  return true;
}

std::byte* RingMemory::get() noexcept {
  if (memory_ == nullptr && !allocate()) {
    return nullptr;
  }
  if (free_.empty()) {
    return nullptr;
  }
  std::byte* const ring = free_.back();
  free_.pop_back();
  std::memset(ring, 0, sizes_.bytes());
  return ring;
}

}  // namespace fabric
