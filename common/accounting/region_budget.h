// SPDX-License-Identifier: BSD-3-Clause
//
// This process's part of a device's memory regions (contexts.h says how large it is). Whoever registers memory with the device
// takes a region here first, whatever for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace fabric {

/// What a memory region is for.
enum class RegionUse : std::uint8_t {
  kSources,  ///< the user's memory for peers to read, for as long as they take: if it cannot be registered it is copied
  kSinks,    ///< the user's memory for peers to write to, until they have
  kOperations,  ///< that of this process's own reads, writes and sends, which wait for no peer's memory
  kSends,       ///< buffers to send from: without one messages wait
  kReceives,    ///< buffers to receive into: without them there is no connection
  kReserve,     ///< what nothing goes on without, and not many: handshakes, RDMA requests
  kFirstTemporary,  ///< registered for the only operation of a context under way that needs that: sooner or later it has its turn
};
inline constexpr std::size_t kRegionUses = 7;

// Of the process, for counters.
inline std::atomic<std::uint64_t> regions_now = 0;       ///< with all devices
inline std::atomic<std::uint64_t> regions_most = 0;      ///< with one device, at any time
inline std::atomic<std::uint64_t> regions_at_limit = 0;  ///< times that none was left

/// No use can take all: for each a part is kept that no other takes, and the rest is for whoever comes first. So whatever waits
/// waits for others of its own kind, which come back, and not for what never does: sources until peers have operations, and maybe
/// sinks, sinks until peers have operations, and those for nobody's memory. For all threads.
class RegionBudget {
 public:
  /// `granted`: 0 or less is not known, and no limit. `why`: how it comes, for texts. `evict`: deregisters memory that nobody uses
  /// now and gives its region back; false if there is none. Only take() calls it.
  explicit RegionBudget(std::int64_t granted = 0, std::string why = {}, std::function<bool()> evict = nullptr);
  RegionBudget(const RegionBudget&) = delete;
  RegionBudget& operator=(const RegionBudget&) = delete;

  /// False: there is none left for that. Something may be given back later.
  [[nodiscard]] bool try_take(RegionUse use) noexcept;
  /// The same, after deregistering what nobody uses. For threads that may call Open MPI.
  [[nodiscard]] bool take(RegionUse use) noexcept;
  void give_back(RegionUse use) noexcept;
  /// A region that counts as one of operations counts as a sink from now on, if there is one left for that: false if not. Nothing
  /// happens to others. Several threads may do it with one region.
  [[nodiscard]] bool become_sink(RegionUse& use) noexcept;

  /// There is one left for that.
  [[nodiscard]] bool has(RegionUse use) const noexcept;
  /// Regions registered now.
  [[nodiscard]] std::int64_t in_use() const noexcept;
  /// 0: no limit.
  [[nodiscard]] std::int64_t granted() const noexcept { return granted_; }
  /// Regions kept for that use.
  [[nodiscard]] std::int64_t kept_for(RegionUse use) const noexcept { return kept_[static_cast<std::size_t>(use)]; }
  /// "all 20 memory regions of this process are in use (40 of the device, ...)".
  [[nodiscard]] std::string explain() const;

 private:
  [[nodiscard]] bool fits(RegionUse use) const noexcept;  ///< one more; the caller has the lock

  const std::int64_t granted_;
  const std::array<std::int64_t, kRegionUses> kept_;  ///< of them, by RegionUse
  const std::string why_;
  const std::function<bool()> evict_;
  mutable std::mutex mutex_;
  std::array<std::int64_t, kRegionUses> taken_{};  ///< by RegionUse
};

}  // namespace fabric
