// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of the rings of a port, in one transmit context: one memory region, registered when the first ring is offered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/registration.h"

namespace fabric {

/// How many rings there may be, and what they are like.
struct RingSizes {
  std::uint32_t rings = 0;  ///< peers that write to one at the same time
  std::uint32_t slots = 0;  ///< messages that one holds
  std::uint32_t slot_size = 0;
  [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{slots} * slot_size; }
};

/// Belongs to whoever holds the context's lock.
class RingMemory {
 public:
  RingMemory(const BufferSource& source, const RingSizes& sizes);
  /// No queue pair that a peer writes through is left.
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  [[nodiscard]] const RingSizes& sizes() const noexcept { return sizes_; }
  /// Zeros for one ring, or null: all are in use, or no memory can be registered.
  [[nodiscard]] std::byte* get() noexcept;
  void put(std::byte* ring) noexcept { free_.push_back(ring); }
  /// Of what get() gave.
  [[nodiscard]] std::uint32_t rkey() const noexcept {
    return static_cast<const Registration*>(registration_)->memory.front().mr->rkey;
  }

 private:
  [[nodiscard]] bool allocate() noexcept;

  const BufferSource source_;
  const RingSizes sizes_;
  void* memory_ = nullptr;
  mca_rcache_base_registration_t* registration_ = nullptr;
  std::vector<std::byte*> free_;  ///< has room for all
};

}  // namespace fabric
