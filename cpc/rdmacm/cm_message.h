// SPDX-License-Identifier: BSD-3-Clause
//
// What the rdmacm and ibcm CPCs put into the private data of the communication manager's messages, and into the modex.
// All integers are big-endian.
//
//     offset size
//          0   52  header, as in message.h: REQUEST in a REQ, REPLY in a REP, REFUSE in a REJ
//         52    1  queue index
//         53    1  queue count n, 1 to kMaxQueues
//         54       REFUSE: body, as in message.h, with a text of at most kMaxCmText bytes
//
// The proof in the header is made with the queue pair of the sender (nonce_of_queue_pair()), where the communication manager
// tells its number: in a REQ and a REP, not on iWARP. A REJ has none.
//
// Devices pad private data with zeros. A REQUEST fits the 56 bytes that a REQ has left for us when it is addressed by IP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "cpc/core/message.h"

namespace fabric::cpc {

inline constexpr std::size_t kCmHeaderBytes = kMessageHeaderBytes + 2;
inline constexpr std::size_t kMaxRequestPrivateData = 56;
inline constexpr std::size_t kMaxRejectPrivateData = 148;
inline constexpr std::size_t kMaxCmText = kMaxRejectPrivateData - kCmHeaderBytes - kRefuseBodyBytes;
static_assert(kCmHeaderBytes <= kMaxRequestPrivateData);

/// A message without ends: those of the queue pairs are the communication manager's to tell. `header.length` plays no
/// part: encode() computes it, decode_cm_message() checks it.
struct CmMessage : Message {
  std::uint8_t queue = 0;
  std::uint8_t queue_count = 1;
};

/// The wire form, to be signed. A text that is too long is cut, and what is not printable becomes '?'.
[[nodiscard]] std::vector<std::byte> encode(const CmMessage& message);

/// Decodes private data, which may be followed by zeros: the message has its `header.length` bytes. The error says which field
/// was wrong, and its value.
[[nodiscard]] Result<CmMessage> decode_cm_message(std::span<const std::byte> private_data);

/// Where a port of a process listens (the blob of a CpcOffer has one for every port that it serves).
struct CmAddress {
  std::uint16_t port_index = 0;
  std::array<std::uint8_t, 16> address{};  ///< rdmacm: an IP address, IPv4 ones IPv4-mapped; ibcm: a GID
  std::uint64_t service = 0;               ///< rdmacm: the port number, ibcm: the service id
  std::uint16_t pkey = 0;                  ///< ibcm
  bool operator==(const CmAddress&) const = default;
};

[[nodiscard]] std::vector<std::byte> encode(std::span<const CmAddress> addresses);
[[nodiscard]] Result<std::vector<CmAddress>> decode_cm_addresses(std::span<const std::byte> blob);

}  // namespace fabric::cpc
