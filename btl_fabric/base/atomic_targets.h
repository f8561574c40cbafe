// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of this process that peers may have atomics executed on by its processor.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "btl_fabric/base/atomic_message.h"

namespace fabric {

/// Thread safe. Ranges are named by the remote key that peers have.
class AtomicTargets {
 public:
  /// The bytes from `first` to `last`, both included. May throw std::bad_alloc.
  void add(std::uint32_t rkey, std::uintptr_t first, std::uintptr_t last);
  /// Forgets the range if it is this one: the key may have been given out again.
  void remove(std::uint32_t rkey, std::uintptr_t first) noexcept;

  /// Has this process's processor execute an atomic, for a peer or for itself. The reply is "not done" if the bytes are
  /// not all in a range, are not aligned, or the operation is none.
  [[nodiscard]] AtomicReply execute(const AtomicMessage& message) const noexcept;

 private:
  struct Range {
    std::uintptr_t first;
    std::uintptr_t last;
  };
  [[nodiscard]] bool allows(const AtomicMessage& message) const noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, Range> ranges_;
};

}  // namespace fabric
