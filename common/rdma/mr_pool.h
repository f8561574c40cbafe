// SPDX-License-Identifier: BSD-3-Clause
//
// Registrations that last for one operation, and the bound on how many there are. Registering takes room in the adapter
// and pins memory; a process that needs it for every operation must not take all of either.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/accounting/region_budget.h"

namespace fabric {

/// What the planner asks verbs for. The real one is VerbsRdma, tests have their own.
class RdmaVerbs {
 public:
  virtual ~RdmaVerbs() = default;
  /// Posts a list, as ibv_post_send() does: 0, or the error and the request that was refused.
  virtual int post(ibv_send_wr* first, ibv_send_wr** refused) noexcept = 0;
  /// Null if memory cannot be registered now.
  virtual ibv_mr* register_memory(void* address, std::size_t length, unsigned access, RegionUse use) noexcept = 0;
  /// `use`: as it was registered for.
  virtual void deregister_memory(ibv_mr* mr, RegionUse use) noexcept = 0;
  /// A memory window that work requests bind; null where there are none.
  virtual ibv_mw* make_window() noexcept = 0;
  virtual void destroy_window(ibv_mw* window) noexcept = 0;
};

/// What a pool is to serve: "up to 16 reads of 1 MiB at a time".
struct MrPoolHints {
  std::uint32_t operations = 16;
  std::uint64_t bytes_each = 1U << 20;
  std::uint32_t windows = UINT32_MAX;  ///< most that it makes
};

/// The temporary registrations of a device. "None left" is an answer: something is given back with every completion.
/// Not thread-safe: belongs to whoever holds the context's lock.
class MrPool {
 public:
  /// A registration, or a window that can be bound to one.
  struct Slot {
    ibv_mr* mr = nullptr;
    ibv_mw* window = nullptr;
    std::uint64_t bytes = 0;
    RegionUse use = RegionUse::kOperations;  ///< that the region counts as
  };

  MrPool(RdmaVerbs& verbs, const MrPoolHints& hints);
  ~MrPool();
  MrPool(const MrPool&) = delete;
  MrPool& operator=(const MrPool&) = delete;

  /// Registers memory. Null when the pool or the device has none left.
  [[nodiscard]] Slot* register_memory(void* address, std::uint64_t length, unsigned access) noexcept;
  /// A window. Null when the pool has none left, or the device none at all.
  [[nodiscard]] Slot* take_window() noexcept;
  void give_back(Slot* slot) noexcept;
  /// The same of a window that may still be bound, which cannot be bound again then: another one takes its place.
  void give_back_bound(Slot* slot) noexcept;
  /// Destroys all windows; nothing is in use.
  void destroy_windows() noexcept;

  [[nodiscard]] std::size_t in_use() const noexcept { return slots_.size() - free_.size() - free_windows_.size(); }
  /// Everything is back.
  [[nodiscard]] bool is_whole() const noexcept { return in_use() == 0 && bytes_left_ == bytes_; }
  [[nodiscard]] std::size_t slots() const noexcept { return slots_.size(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  /// A slot from the list that is preferred, or else from the other one; null if there is none.
  [[nodiscard]] static Slot* take(std::vector<Slot*>& preferred, std::vector<Slot*>& other) noexcept;

  RdmaVerbs& verbs_;
  std::uint64_t bytes_;
  std::uint64_t bytes_left_;
  std::uint32_t windows_left_;  ///< to make
  std::vector<Slot> slots_;
  // Neither grows beyond slots_: no allocation after the constructor
  std::vector<Slot*> free_;
  std::vector<Slot*> free_windows_;  ///< those that have one
};

}  // namespace fabric
