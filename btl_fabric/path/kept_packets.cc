// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/kept_packets.h"

#include <new>

namespace fabric {

/// There is always room at the other end: what is not known to have arrived is fewer packets than fit.
[[gnu::cold]] bool KeptPackets::wrap() noexcept {
  if (is_lossy_) {
    return false;
  }
  if (!memory_) {
    try {
      ends_.resize(most_ + 1);
      memory_ = std::make_unique_for_overwrite<std::byte[]>((most_ + 1) * longest_);
      size_ = (most_ + 1) * longest_;
    } catch (const std::bad_alloc&) {
      is_lossy_ = true;
      return false;
    }
    return true;
  }
  assert(begin_ >= longest_);
  wrapped_at_ = end_;
  end_ = 0;
  return true;
}

}  // namespace fabric
