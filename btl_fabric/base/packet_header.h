// SPDX-License-Identifier: BSD-3-Clause
//
// What stands in front of every message on a queue pair.
#pragma once

#include <cstddef>
#include <cstdint>

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
};

/// The header, 8 bytes so that what follows keeps its alignment: kind, tag, the grant of a P queue (see CreditWindow; of a
/// CTS, which grants nothing, its number), and two bytes of zeros.
struct PacketHeader {
  PacketKind kind = PacketKind::kMessage;
  std::uint8_t tag = 0;  ///< MCA_BTL_TAG_*: whose message it is
  CreditGrant grant;

  static constexpr std::size_t kSize = 8;

  /// A CTS with this number: cpc::Linked::cts.
  [[nodiscard]] static constexpr PacketHeader clear_to_send(std::uint32_t number) noexcept {
    return {
        PacketKind::kClearToSend, 0, {static_cast<std::uint16_t>(number >> 16U), static_cast<std::uint16_t>(number)}};
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
    store_be(to + 6, std::uint16_t{0});
  }

  /// False if this is not a header of ours.
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length < kSize || static_cast<std::uint8_t>(from[0]) > static_cast<std::uint8_t>(PacketKind::kGoodbye)) {
      return false;
    }
    kind = static_cast<PacketKind>(from[0]);
    tag = static_cast<std::uint8_t>(from[1]);
    grant.credits = load_be<std::uint16_t>(from + 2);
    grant.explicit_seen = load_be<std::uint16_t>(from + 4);
    return true;
  }
};

}  // namespace fabric
