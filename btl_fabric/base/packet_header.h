// SPDX-License-Identifier: BSD-3-Clause
//
// What stands in front of every message on a queue pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/accounting/credit_window.h"
#include "common/base/wire.h"

namespace fabric {

/// What a packet is for. Values travel on the wire.
enum class PacketKind : std::uint8_t {
  kMessage = 0,
  kCredits = 1,
  kClearToSend = 2,  ///< the first message of a connection, where there is one: see btl_fabric/peer/endpoint_table.h
  kAtomic = 3,       ///< an AtomicMessage
  kAtomicReply = 4,  ///< an AtomicReply
  kGoodbye = 5,      ///< the last message of a link
  kMessages = 6,     ///< several messages, each behind a RecordHeader
  kRing = 7,         ///< a RingOffer
  kRingLeft = 8,     ///< the answer to one that takes the ring back: nothing more is written there
  kRest = 9,         ///< the last message on a queue until the peer answers: it may say goodbye, or kStay
  kStay = 10,        ///< the answer that the link is needed
  kCounts = 11,      ///< PacketCounts::taken of each queue, after a link has broken
  kDetour = 12,      ///< a DetourHeader, and what it says: for another endpoint of the peer, whose own link has broken
};
inline constexpr PacketKind kLastPacketKind = PacketKind::kDetour;

/// It is about the link that carries it, and about no other.
[[nodiscard]] constexpr bool is_about_link(PacketKind kind) noexcept {
  return kind == PacketKind::kGoodbye || (kind >= PacketKind::kRing && kind != PacketKind::kDetour);
}

/// It is sent again if it is lost with a link, and both sides count it.
[[nodiscard]] constexpr bool is_counted(PacketKind kind) noexcept {
  return kind == PacketKind::kMessage || kind == PacketKind::kMessages || kind == PacketKind::kAtomic ||
         kind == PacketKind::kAtomicReply || kind == PacketKind::kDetour;
}

/// Packets of a queue that are counted, since there is the endpoint; the numbers go round. A queue pair keeps their order, so
/// what one side has taken tells the other what has arrived.
struct PacketCounts {
  std::uint32_t sent = 0;   ///< posted: the number of the next one
  std::uint32_t taken = 0;  ///< come from the peer
};

/// The body of a PacketKind::kCounts, of `count` counts: what has been taken of each, and the number of the telling.
[[nodiscard]] constexpr std::size_t counts_size(std::size_t count) noexcept {
  return (count + 1) * sizeof(std::uint32_t);
}
inline void write_counts(std::byte* to, std::span<const PacketCounts> counts, std::uint32_t number) noexcept {
  for (const PacketCounts& one : counts) {
    store_be(to, one.taken);
    to += sizeof(std::uint32_t);
  }
  store_be(to, number);
}

/// What a kCounts says behind its counts with X queues, whose two ways break apart. Both are incarnations of connections; 0: none.
struct CountsOfOneWay {
  std::uint32_t asks = 0;     ///< the sender wants the peer's counts: of the connection that this comes by
  std::uint32_t answers = 0;  ///< the peer has asked: of the connection by which it did

  static constexpr std::size_t kSize = 8;
  void write(std::byte* to) const noexcept {
    store_be(to, asks);
    store_be(to + sizeof asks, answers);
  }
  [[nodiscard]] static CountsOfOneWay read(const std::byte* from) noexcept {
    return {load_be<std::uint32_t>(from), load_be<std::uint32_t>(from + sizeof asks)};
  }
};

/// The header, 8 bytes so that what follows keeps its alignment: kind, tag, the grant of a P queue (see CreditWindow; of a
/// CTS, which grants nothing, its number), and notes: slots of the receiver's ring that may be written again, and whether a
/// message has had to wait for a credit.
struct PacketHeader {
  PacketKind kind = PacketKind::kMessage;
  std::uint8_t tag = 0;  ///< MCA_BTL_TAG_*: whose message it is
  CreditGrant grant;
  std::uint16_t notes = 0;

  static constexpr std::size_t kSize = 8;
  static constexpr std::uint16_t kShortOfCredits = 0x8000;  ///< of `notes`; the rest are ring slots

  [[nodiscard]] constexpr std::uint16_t ring_slots() const noexcept {
    return static_cast<std::uint16_t>(notes & ~kShortOfCredits);
  }
  [[nodiscard]] constexpr bool is_short_of_credits() const noexcept { return (notes & kShortOfCredits) != 0; }

  /// A CTS with this number: cpc::Linked::cts.
  [[nodiscard]] static constexpr PacketHeader clear_to_send(std::uint32_t number) noexcept {
    return {PacketKind::kClearToSend,
            0,
            {static_cast<std::uint16_t>(number >> 16U), static_cast<std::uint16_t>(number)},
            0};
  }
  /// Of a CTS.
  [[nodiscard]] constexpr std::uint32_t cts_number() const noexcept {
    return std::uint32_t{grant.credits} << 16U | grant.explicit_seen;
  }

  void write(std::byte* to) const noexcept {
    to[0] = static_cast<std::byte>(kind);
    to[1] = static_cast<std::byte>(tag);
    store_be(to + 2, grant.credits);
    store_be(to + 4, grant.explicit_seen);
    store_be(to + 6, notes);
  }

  /// False if this is not a header of ours.
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length < kSize || static_cast<std::uint8_t>(from[0]) > static_cast<std::uint8_t>(kLastPacketKind)) {
      return false;
    }
    kind = static_cast<PacketKind>(from[0]);
    tag = static_cast<std::uint8_t>(from[1]);
    grant.credits = load_be<std::uint16_t>(from + 2);
    grant.explicit_seen = load_be<std::uint16_t>(from + 4);
    notes = load_be<std::uint16_t>(from + 6);
    return true;
  }
};

/// What stands in front of each message of a packet that carries several: its size, its tag, and zeros. The next one begins
/// at a multiple of 8 bytes, as a message behind a PacketHeader does.
struct RecordHeader {
  std::uint16_t size = 0;  ///< bytes of the message
  std::uint8_t tag = 0;    ///< MCA_BTL_TAG_*

  static constexpr std::size_t kSize = 8;

  /// Bytes that a message of `size` bytes takes in the packet.
  [[nodiscard]] static constexpr std::size_t room_for(std::size_t size) noexcept {
    return kSize + (size + kSize - 1) / kSize * kSize;
  }

  void write(std::byte* to) const noexcept {
    std::memset(to, 0, kSize);
    store_be(to, size);
    to[2] = static_cast<std::byte>(tag);
  }

  /// False if no message, or not all of it, is in the `length` bytes.
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length < kSize) {
      return false;
    }
    size = load_be<std::uint16_t>(from);
    tag = static_cast<std::uint8_t>(from[2]);
    return room_for(size) <= length;
  }
};

}  // namespace fabric
