// SPDX-License-Identifier: BSD-3-Clause
//
// The messages of connection set-up. All integers are big-endian. As they travel over TCP (oob, xoob); what a communication
// manager carries has the same header and the same REFUSE (cm_message.h):
//
//     offset size
//          0    4  magic, kMessageMagic
//          4    1  version, kMessageVersion
//          5    1  type, MessageType; over TCP with kByOpener, if the sender has opened the channel that the message is of
//          6    2  length of the whole message, header included
//          8   16  proof, a keyed hash of all the rest, and of the message's place (message_key.h). Its key is the token of
//                  the process that *listens*, whoever sends the message: from the side that has connected it proves that
//                  it belongs to the job, from the listener that it is who was meant
//         24    8  sender: job, rank
//         32    8  target: job, rank
//         40    2  sender's port, index
//         42    2  target's port, index
//         44    4  attempt: counts up with every REQUEST of a connection
//         48    4  incarnation: which of the connections that one pair of ports has one after the other
//         52       body
//
//     body of REQUEST, TARGET and REPLY  body of REFUSE               body of CONFIRM and PAUSE
//          52    1  link                      52    1  RefuseReason        none
//          53    1  mtu                       53    4  newest incarnation that the sender knows
//          54    2  lid                       57    2  length of the text     of CLOSE
//          56   16  gid                       59    n  text, at most        52    1  1 if the sender has read the CONFIRM
//                                                      kMaxRefuseText bytes            of the channel, else 0
//          72   16  subnet, prefix
//          88    1  subnet, bits
//          89    1  queue pair count n, 1 to kMaxQueues
//          90   8n  qpn, psn (4 bytes each, 24 significant)
//       90+8n    4  XRC target that the sender is connected to (24 bits), or 0
//       94+8n    1  count m of XRC shared receive queues, 0 to kMaxQueues
//       95+8n   4m  their numbers (24 bits)
//
// Answers repeat the attempt and the incarnation that they answer.
//
// xoob: REQUEST has the one end of the queue pair that all X queues share, and the target. TARGET and REPLY have the end
// of the target that the REQUEST is answered with: TARGET at once, REPLY when messages may come, with the numbers of the
// receive queues that they are for.
//
// Over TCP all channels of two processes may share one connection. A message is of the channel whose ports, attempt and
// incarnation it names, and that the side with kByOpener has opened by a REQUEST. A side that is done with a channel says CLOSE;
// the connection's end is the end of all of them. Who hears of a channel that it has closed takes no notice.
//
// The listener has the first word, so that no message that was heard on one connection is good on another. HELLO has no more
// than this:
//
//          0    4  magic
//          4    1  version
//          5    1  kHelloType
//          6    2  length, kHelloBytes
//          8   16  nonce, which the proofs on this connection depend on
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/accounting/receive_queues.h"
#include "common/base/identity.h"
#include "common/base/result.h"
#include "common/base/wire.h"
#include "common/ports/port_address.h"
#include "cpc/core/message_key.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

inline constexpr std::uint32_t kMessageMagic = 0x62664f42;  // "bfOB"
inline constexpr std::uint8_t kMessageVersion = 5;
inline constexpr std::size_t kMessageHeaderBytes = 52;
inline constexpr std::size_t kProofOffset = 8;
inline constexpr std::uint8_t kByOpener = 0x80;  ///< a bit of the byte that has the type
inline constexpr std::uint8_t kHelloType = 7;    ///< no MessageType: a HELLO is nothing but the first word
inline constexpr std::size_t kHelloBytes = kProofOffset + sizeof(Nonce);
inline constexpr std::size_t kRefuseBodyBytes = 7;  ///< before the text
inline constexpr std::size_t kMaxRefuseText = 512;
inline constexpr std::size_t kMaxMessageBytes = kMessageHeaderBytes + kRefuseBodyBytes + kMaxRefuseText;

enum class MessageType : std::uint8_t {
  kRequest = 1,
  kReply = 2,
  kConfirm = 3,
  kRefuse = 4,
  kTarget = 5,
  kPause = 6,  ///< the channel is closed to let others go first; the side that opened it comes back
  kClose = 8,  ///< over TCP: the sender is done with the channel
};

/// Why a side will not connect. Values travel and never change their meaning; the text says it for users.
enum class RefuseReason : std::uint8_t {
  kCollision = 1,        ///< the refusing side's own request has precedence, or is newer, and is on its way
  kUnknownPort = 2,      ///< it has no such port
  kQueueMismatch = 3,    ///< its connections have another number of queues
  kOtherConnection = 4,  ///< its connection of that incarnation has other queue pairs at the sender
  kOutdated = 5,         ///< that incarnation is over: a newer one will be taken
  kClosed = 6,           ///< its main thread gave the connection up; a newer one may be taken
  kFailed = 7,           ///< it met an error
  kTargetGone = 8,       ///< the XRC target that the request names is not there any more
  kNotWanted = 9,        ///< its main thread will have no connection with the sender
  kOtherVersion = 10,    ///< it speaks another version of these messages: no more said, since nobody can prove it
  kDeviceGone = 11,      ///< its device of that port is gone: there are no connections any more
};

struct MessageHeader {
  MessageType type = MessageType::kRequest;
  std::uint16_t length = 0;  ///< bytes of the whole message; encode() computes it
  Proof proof{};             ///< as it came; MessageKey::sign() computes it
  ProcessName sender;
  ProcessName target;
  std::uint16_t sender_port = 0;
  std::uint16_t target_port = 0;
  std::uint32_t attempt = 0;
  std::uint32_t incarnation = 0;
  bool by_opener = false;  ///< over TCP: its sender has opened the channel
};

/// A message; which of the fields after the header count depends on its type.
struct Message {
  MessageHeader header;
  PortAddress address;                          ///< REQUEST, TARGET, REPLY: of the sender's port
  std::vector<QueuePairEnd> ends;               ///< REQUEST, TARGET, REPLY: the sender's, one per queue
  XrcNumbers xrc{};                             ///< xoob's REQUEST, REPLY
  RefuseReason reason = RefuseReason::kFailed;  ///< REFUSE
  std::uint32_t newest = 0;                     ///< REFUSE: newest incarnation that the sender knows; 0: none
  std::string text;                             ///< REFUSE: for the user; printable ASCII
  bool confirm_read = false;                    ///< CLOSE: the sender has read the CONFIRM
};

/// "REQUEST"
[[nodiscard]] const char* to_string(MessageType type) noexcept;

/// The header, with a length that finish_message() fills in.
void put_header(ByteWriter& to, const MessageHeader& header);
/// The whole message, with its length.
[[nodiscard]] std::vector<std::byte> finish_message(ByteWriter& message);
/// Checks what has arrived of magic, version and type.
[[nodiscard]] Status check_start(std::span<const std::byte> received);
/// After check_start(): the header, of a message that is at least that long.
[[nodiscard]] MessageHeader get_header(ByteReader& from);

/// The body of a REFUSE. A text of more than `most_text` bytes is cut, and what is not printable becomes '?'.
void put_refusal(ByteWriter& to, const Message& refusal, std::size_t most_text);
[[nodiscard]] Status get_refusal(ByteReader& from, Message& refusal);

/// The wire form, to be signed. At most kMaxQueues ends; a text that is too long is cut, and what is not printable becomes '?'.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// The version of the message that starts with these bytes, if it is one of ours and of another version; nothing if it is
/// not, or if too few bytes have arrived to tell.
[[nodiscard]] std::optional<std::uint8_t> other_version(std::span<const std::byte> received) noexcept;

/// " speaks version 3 of the messages of connection set-up, we 4: ...", for users.
[[nodiscard]] std::string speaks_other_version(unsigned theirs);

/// Looks at the first bytes of a message, however few have arrived: an error as soon as they cannot become a good
/// header (magic, version, type, length), nothing while they can, the header when it is complete.
[[nodiscard]] Result<std::optional<MessageHeader>> decode_header(std::span<const std::byte> received);

/// The wire form of a HELLO.
[[nodiscard]] std::array<std::byte, kHelloBytes> encode_hello(const Nonce& nonce) noexcept;
/// Looks at what has arrived of a HELLO, as decode_header() does. What follows it is not looked at.
[[nodiscard]] Result<std::optional<Nonce>> decode_hello(std::span<const std::byte> received);

/// Decodes a message of exactly `bytes.size()` bytes. The error says which field was wrong, and its value. Whether the proof is
/// good is for a MessageKey to say.
[[nodiscard]] Result<Message> decode_message(std::span<const std::byte> bytes);

}  // namespace fabric::cpc
