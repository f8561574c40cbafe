// SPDX-License-Identifier: BSD-3-Clause
//
// The handshake buffers of a device: a few registered bytes for every connection that exchanges CTS, cut from blocks, so
// that a connection costs bytes and not a registration.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/accounting/region_budget.h"
#include "common/base/result.h"
#include "common/base/verbs_handle.h"

namespace fabric::cpc {

/// Room for one control message each way: the header that stands in front of every message.
inline constexpr std::size_t kHandshakeBytes = 8;

/// The lowest bits of the wr_id of a handshake receive; the rest is HandshakeSlot::serial. (Other wr_ids are pointers,
/// with other values in these bits.)
inline constexpr std::uint64_t kHandshakeTag = 4;
inline constexpr unsigned kHandshakeTagBits = 3;

/// A slot, as both threads know it.
struct HandshakeSlot {
  std::byte* receive = nullptr;  ///< kHandshakeBytes for the peer's CTS, where a P queue takes it
  std::byte* send = nullptr;     ///< kHandshakeBytes for ours, if the device takes nothing inline
  std::uint32_t lkey = 0;
  std::uint64_t serial = 0;  ///< never used again: a completion that comes late belongs to no other connection
  std::uint8_t queues = 1;   ///< that CTS goes over: the first, or all of them
};

/// Progress thread only, except for making and destroying it; outlives every queue pair.
class HandshakeSlab {
 public:
  /// `budget`: that memory regions are taken from, and that outlives this; null: there is no limit.
  explicit HandshakeSlab(ibv_pd* pd, RegionBudget* budget = nullptr) noexcept : pd_(pd), budget_(budget) {}
  ~HandshakeSlab();
  HandshakeSlab(const HandshakeSlab&) = delete;
  HandshakeSlab& operator=(const HandshakeSlab&) = delete;

  /// Takes a slot, with a serial of its own.
  [[nodiscard]] Result<HandshakeSlot> take();
  /// Allocates nothing: what has a slot gives it back as it is destroyed.
  void give_back(const HandshakeSlot& slot) noexcept;

  /// Slots in use, for tests.
  [[nodiscard]] std::size_t taken() const noexcept { return blocks_.size() * kSlotsPerBlock - free_.size(); }

 private:
  static constexpr std::size_t kSlotBytes = 2 * kHandshakeBytes;
  static constexpr std::size_t kSlotsPerBlock = 256;  // a page
  using MemoryRegion = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;

  struct Block {
    std::unique_ptr<std::array<std::byte, kSlotBytes * kSlotsPerBlock>> bytes;
    MemoryRegion region;  ///< goes first
  };
  struct FreeSlot {
    std::byte* bytes;
    std::uint32_t lkey;
  };
  [[nodiscard]] Status add_block();

  ibv_pd* pd_;
  RegionBudget* budget_;
  std::vector<Block> blocks_;
  std::vector<FreeSlot> free_;
  std::uint64_t next_serial_ = 1;
};

}  // namespace fabric::cpc
