// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/region_budget.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace fabric {
namespace {

void raise(std::atomic<std::uint64_t>& most, std::uint64_t value) noexcept {
  std::uint64_t seen = most.load(std::memory_order_relaxed);
  while (seen < value && !most.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// What is kept for each use: some seven eighths of what there is. Most for buffers to receive into, of which every peer has some.
std::array<std::int64_t, kRegionUses> shares_of(std::int64_t granted) noexcept {
  constexpr std::int64_t kMostReserved = 16;
  const std::int64_t least = granted >= std::int64_t{kRegionUses} ? 1 : 0;
  const auto eighths = [&](std::int64_t count) { return std::max(granted * count / 8, least); };
  std::array<std::int64_t, kRegionUses> kept{};
  kept[static_cast<std::size_t>(RegionUse::kSources)] = eighths(1) / 2;
  kept[static_cast<std::size_t>(RegionUse::kSinks)] = std::max(eighths(1) / 2, least);
  kept[static_cast<std::size_t>(RegionUse::kOperations)] = eighths(1);
  kept[static_cast<std::size_t>(RegionUse::kSends)] = eighths(1);
  kept[static_cast<std::size_t>(RegionUse::kReceives)] = eighths(3);
  kept[static_cast<std::size_t>(RegionUse::kReserve)] = std::min(eighths(1), kMostReserved);
  kept[static_cast<std::size_t>(RegionUse::kFirstTemporary)] = least;
  return kept;
}

}  // namespace

RegionBudget::RegionBudget(std::int64_t granted, std::string why, std::function<bool()> evict)
    : granted_(std::max<std::int64_t>(0, granted)),
      kept_(shares_of(granted_)),
      why_(std::move(why)),
      evict_(std::move(evict)) {}

std::int64_t RegionBudget::in_use() const noexcept {
  const std::lock_guard guard(mutex_);
  return std::accumulate(taken_.begin(), taken_.end(), std::int64_t{0});
}

bool RegionBudget::fits(RegionUse use) const noexcept {
  std::int64_t needed = 1;
  for (std::size_t other = 0; other < kRegionUses; ++other) {
    needed += other == static_cast<std::size_t>(use) ? taken_[other] : std::max(taken_[other], kept_[other]);
  }
  return granted_ == 0 || needed <= granted_;
}

bool RegionBudget::has(RegionUse use) const noexcept {
  const std::lock_guard guard(mutex_);
  return fits(use);
}

bool RegionBudget::try_take(RegionUse use) noexcept {
  const std::lock_guard guard(mutex_);
  if (!fits(use)) {
    regions_at_limit.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  ++taken_[static_cast<std::size_t>(use)];
  regions_now.fetch_add(1, std::memory_order_relaxed);
  raise(regions_most, static_cast<std::uint64_t>(std::accumulate(taken_.begin(), taken_.end(), std::int64_t{0})));
  return true;
}

bool RegionBudget::become_sink(RegionUse& use) noexcept {
  const std::lock_guard guard(mutex_);
  if (use != RegionUse::kOperations) {
    return true;
  }
  --taken_[static_cast<std::size_t>(use)];
  const bool can = fits(RegionUse::kSinks);
  use = can ? RegionUse::kSinks : use;
  ++taken_[static_cast<std::size_t>(use)];
  return can;
}

bool RegionBudget::take(RegionUse use) noexcept {
  while (!try_take(use)) {
    if (evict_ == nullptr || !evict_()) {
      return false;
    }
  }
  return true;
}

void RegionBudget::give_back(RegionUse use) noexcept {
  const std::lock_guard guard(mutex_);
  assert(taken_[static_cast<std::size_t>(use)] > 0);
  --taken_[static_cast<std::size_t>(use)];
  regions_now.fetch_sub(1, std::memory_order_relaxed);
}

std::string RegionBudget::explain() const {
  return "all " + std::to_string(granted_) +
         " memory regions of this process are in use, or kept for what each needs (" + why_ + ")";
}

}  // namespace fabric
