// SPDX-License-Identifier: BSD-3-Clause
//
// What the rdmacm and ibcm CPCs put into the private data of the communication manager's messages, and into the modex.
// All integers are big-endian.
//
//     offset size
//          0    4  magic, kCmMagic
//          4    1  version, kCmVersion
//          5    1  type, MessageType: REQUEST in a REQ, REPLY in a REP, REFUSE in a REJ
//          6    1  length of all of it: devices pad private data with zeros
//          7    1  queue index
//          8    1  queue count n, 1 to kMaxQueues
//          9   16  token of the process that listens, as in message.h
//         25    8  sender: job, rank
//         33    8  target: job, rank
//         41    2  sender's port, index
//         43    2  target's port, index
//         45    4  attempt
//         49    4  incarnation
//         53       REFUSE: 1 RefuseReason, 4 newest incarnation that the sender knows, then text, at most kMaxCmText bytes
//
// A REQUEST fits the 56 bytes that a REQ has left for us when it is addressed by IP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "cpc/core/message.h"

namespace fabric::cpc {

inline constexpr std::uint32_t kCmMagic = 0x6266434d;  // "bfCM"
inline constexpr std::uint8_t kCmVersion = 2;
inline constexpr std::size_t kCmHeaderBytes = 53;
inline constexpr std::size_t kMaxRequestPrivateData = 56;
inline constexpr std::size_t kMaxCmText = 90;  ///< a REJ has 148 bytes
static_assert(kCmHeaderBytes <= kMaxRequestPrivateData);

/// One message. `header.length` plays no part: encode() computes it, decode_cm_message() checks it.
struct CmMessage {
  MessageHeader header;
  std::uint8_t queue = 0;
  std::uint8_t queue_count = 1;
  RefuseReason reason = RefuseReason::kFailed;  ///< REFUSE
  std::uint32_t newest = 0;                     ///< REFUSE: newest incarnation that the sender knows; 0: none
  std::string text;                             ///< REFUSE: printable ASCII
};

/// The wire form. A text that is too long is cut, and what is not printable becomes '?'.
[[nodiscard]] std::vector<std::byte> encode(const CmMessage& message);

/// The version of a message of ours in private data, if it is another one than ours.
[[nodiscard]] std::optional<std::uint8_t> other_cm_version(std::span<const std::byte> private_data) noexcept;

/// Decodes private data, which may be followed by zeros. The error says which field was wrong, and its value.
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
