// SPDX-License-Identifier: BSD-3-Clause
//
// Eager RDMA on the wire: how a receiver offers a ring of its memory, and what a sender writes there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "btl_fabric/base/packet_header.h"
#include "common/base/wire.h"

namespace fabric {

/// Where a ring is. One without slots takes back the ring that was offered before.
struct RingOffer {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint16_t slots = 0;
  std::uint16_t slot_size = 0;  ///< bytes, a multiple of 8
  bool operator==(const RingOffer&) const = default;

  static constexpr std::size_t kSize = 16;

  void write(std::byte* to) const noexcept {
    store_be(to, address);
    store_be(to + 8, rkey);
    store_be(to + 12, slots);
    store_be(to + 14, slot_size);
  }
  /// False if this is no offer.
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept;
};

/// What stands behind each message in a ring, at the end of its slot. A message is written so that it ends there, in one
/// write, and the very last byte says that it has come.
struct RingTrailer {
  PacketHeader header;
  std::uint16_t size = 0;  ///< bytes of the message
  std::uint8_t lap = 0;    ///< not that of the message before it in this slot, and not 0

  static constexpr std::size_t kSize = 16;
  static constexpr std::size_t kLapAt = kSize - 1;

  /// Bytes that a message takes in front of its trailer: the message begins at a multiple of 8.
  [[nodiscard]] static constexpr std::size_t room_for(std::size_t size) noexcept { return (size + 7) / 8 * 8; }

  void write(std::byte* to) const noexcept {
    std::memset(to + PacketHeader::kSize, 0, kSize - PacketHeader::kSize);
    header.write(to);
    store_be(to + PacketHeader::kSize, size);
    to[kLapAt] = static_cast<std::byte>(lap);
  }
  /// False if no message that a slot of `slot_size` bytes holds can end in this.
  [[nodiscard]] bool read(const std::byte* from, std::size_t slot_size) noexcept {
    size = load_be<std::uint16_t>(from + PacketHeader::kSize);
    return header.read(from, kSize) && header.kind == PacketKind::kMessage && room_for(size) + kSize <= slot_size;
  }
};

inline bool RingOffer::read(const std::byte* from, std::size_t length) noexcept {
  if (length != kSize) {
    return false;
  }
  address = load_be<std::uint64_t>(from);
  rkey = load_be<std::uint32_t>(from + 8);
  slots = load_be<std::uint16_t>(from + 12);
  slot_size = load_be<std::uint16_t>(from + 14);
  if (slots == 0) {
    return *this == RingOffer{};
  }
  return address % 8 == 0 && slot_size % 8 == 0 && slot_size > RingTrailer::kSize;
}

}  // namespace fabric
