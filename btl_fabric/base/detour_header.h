// SPDX-License-Identifier: BSD-3-Clause
//
// What follows the packet header of a PacketKind::kDetour: whom it is for, and what the rest is. It says to an endpoint whose link
// has broken what only that one understands; messages go as messages of the link that carries them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl_fabric/base/opal.h"
#include "common/base/wire.h"

namespace fabric {

/// 8 bytes, so that what follows keeps its alignment.
struct DetourHeader {
  /// Values travel on the wire.
  enum class What : std::uint8_t {
    kCounts = 0,          ///< as the body of a PacketKind::kCounts, and CountsAside: the link has broken
    kCountsAndYours = 1,  ///< the same, and an answer is wanted
    kAtomic = 2,          ///< an AtomicMessage
    kAtomicReply = 3,     ///< an AtomicReply
    kMessage = 4,         ///< as the body of a PacketKind::kMessage, whose tag is here
    kMessages = 5,        ///< as the body of a PacketKind::kMessages
  };

  std::uint16_t to_port = 0;    ///< of the receiver, in its modex: the endpoint there that is meant
  std::uint16_t from_port = 0;  ///< of the sender: with which that one is connected, or will be
  What what = What::kCounts;
  mca_btl_base_tag_t tag = 0;

  static constexpr std::size_t kSize = 8;

  void write(std::byte* to) const noexcept {
    store_be(to, to_port);
    store_be(to + 2, from_port);
    store_be(to + 4, static_cast<std::uint32_t>(what) << 8U | tag);
  }
  /// False if this is none.
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length < kSize || load_be<std::uint32_t>(from + 4) >> 8U > static_cast<std::uint32_t>(What::kMessages)) {
      return false;
    }
    to_port = load_be<std::uint16_t>(from);
    from_port = load_be<std::uint16_t>(from + 2);
    what = static_cast<What>(load_be<std::uint32_t>(from + 4) >> 8U);
    tag = static_cast<mca_btl_base_tag_t>(load_be<std::uint32_t>(from + 4));
    return true;
  }
};

/// Behind counts that go by another way.
struct CountsAside {
  std::uint32_t heard = 0;  ///< the receiver's newest telling by such a way that the sender has heard of; 0: none
  std::uint32_t lost_qpn =
      0;  ///< the receiver's queue pair of the first queue of the link that the sender has lost; 0: none

  static constexpr std::size_t kSize = 8;

  void write(std::byte* to) const noexcept {
    store_be(to, heard);
    store_be(to + 4, lost_qpn);
  }
  [[nodiscard]] static CountsAside read(const std::byte* from) noexcept {
    return {load_be<std::uint32_t>(from), load_be<std::uint32_t>(from + 4)};
  }
};

}  // namespace fabric
