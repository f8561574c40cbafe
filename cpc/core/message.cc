// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/message.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "common/base/wire.h"

namespace fabric::cpc {
namespace {

constexpr std::size_t kEndsBodyBytes = 43;  ///< of REQUEST, TARGET and REPLY, without what there are several of
constexpr std::size_t kEndBytes = 8;
constexpr std::size_t kSrqBytes = 4;
constexpr std::size_t kCloseBodyBytes = 1;
constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::size_t kLengthOffset = 6;
constexpr auto kLastReason = static_cast<std::uint8_t>(RefuseReason::kDeviceGone);

static_assert(kMessageHeaderBytes + kEndsBodyBytes + kMaxQueues * (kEndBytes + kSrqBytes) <= kMaxMessageBytes);

bool has_ends(MessageType type) noexcept {
  return type == MessageType::kRequest || type == MessageType::kTarget || type == MessageType::kReply;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return clean;
}

void put_ends(ByteWriter& to, const Message& message) {
  const PortAddress& address = message.address;
  const std::vector<QueuePairEnd>& ends = message.ends;
  assert(!ends.empty() && ends.size() <= kMaxQueues && message.xrc.srqs.size() <= kMaxQueues);
  to.put(static_cast<std::uint8_t>(address.link));
  to.put(address.mtu);
  to.put(address.lid);
  to.put_bytes(std::as_bytes(std::span(address.gid.raw)));
  to.put_bytes(std::as_bytes(std::span(address.subnet.prefix)));
  to.put(address.subnet.bits);
  to.put(static_cast<std::uint8_t>(ends.size()));
  for (const QueuePairEnd& end : ends) {
    to.put(end.qpn);
    to.put(end.psn);
  }
  to.put(message.xrc.target_qpn);
  to.put(static_cast<std::uint8_t>(message.xrc.srqs.size()));
  for (const std::uint32_t number : message.xrc.srqs) {
    to.put(number);
  }
}

Status read_address(ByteReader& from, PortAddress& address) {
  const auto link = from.get<std::uint8_t>();
  address.mtu = from.get<std::uint8_t>();
  address.lid = from.get<std::uint16_t>();
  from.get_bytes(std::as_writable_bytes(std::span(address.gid.raw)));
  from.get_bytes(std::as_writable_bytes(std::span(address.subnet.prefix)));
  address.subnet.bits = from.get<std::uint8_t>();
  if (link < 1 || link > 3) {
    return failure("link is " + std::to_string(link) + ", not 1 to 3");
  }
  address.link = static_cast<Transport>(link);
  if (address.mtu < 1 || address.mtu > 5) {
    return failure("MTU code is " + std::to_string(address.mtu) + ", not 1 to 5");
  }
  if (address.subnet.bits > 128) {
    return failure("subnet has " + std::to_string(address.subnet.bits) + " bits, more than 128");
  }
  return {};
}

Status read_queue_pairs(ByteReader& from, std::vector<QueuePairEnd>& ends) {
  const auto count = from.get<std::uint8_t>();
  if (count < 1 || count > kMaxQueues) {
    return failure("queue pair count is " + std::to_string(count) + ", not 1 to " + std::to_string(kMaxQueues));
  }
  for (unsigned i = 0; i < count; ++i) {
    const auto qpn = from.get<std::uint32_t>();
    const auto psn = from.get<std::uint32_t>();
    if (qpn > kMax24Bits || psn > kMax24Bits) {
      return failure("queue pair " + std::to_string(i) + ": number " + std::to_string(qpn) + " or sequence number " +
                     std::to_string(psn) + " has more than 24 bits");
    }
    ends.push_back({qpn, psn});
  }
  return {};
}

Status read_xrc(ByteReader& from, XrcNumbers& xrc) {
  xrc.target_qpn = from.get<std::uint32_t>();
  const auto count = from.get<std::uint8_t>();
  if (xrc.target_qpn > kMax24Bits) {
    return failure("target " + std::to_string(xrc.target_qpn) + " has more than 24 bits");
  }
  if (count > kMaxQueues) {
    return failure("XRC queue count is " + std::to_string(count) + ", not 0 to " + std::to_string(kMaxQueues));
  }
  for (unsigned i = 0; i < count; ++i) {
    xrc.srqs.push_back(from.get<std::uint32_t>());
    if (xrc.srqs.back() > kMax24Bits) {
      return failure("XRC queue " + std::to_string(i) + ": number " + std::to_string(xrc.srqs.back()) +
                     " has more than 24 bits");
    }
  }
  return {};
}

Status read_ends(ByteReader& from, Message& message) {
  if (Status address = read_address(from, message.address); !address) {
    return address;
  }
  if (Status ends = read_queue_pairs(from, message.ends); !ends) {
    return ends;
  }
  if (Status xrc = read_xrc(from, message.xrc); !xrc) {
    return xrc;
  }
  if (!from.ok() || from.remaining() != 0) {
    return failure("its length does not fit " + std::to_string(message.ends.size()) + " queue pairs of " +
                   std::to_string(kEndBytes) + " bytes and " + std::to_string(message.xrc.srqs.size()) +
                   " XRC queues of " + std::to_string(kSrqBytes));
  }
  return {};
}

Status read_close(ByteReader& from, Message& message) {
  const auto confirm_read = from.get<std::uint8_t>();
  if (confirm_read > 1) {
    return failure("whether the CONFIRM was read is " + std::to_string(confirm_read) + ", not 0 or 1");
  }
  message.confirm_read = confirm_read == 1;
  return {};
}

Status read_body(ByteReader& from, Message& message) {
  switch (message.header.type) {
    case MessageType::kRequest:
    case MessageType::kTarget:
    case MessageType::kReply:
      return read_ends(from, message);
    case MessageType::kRefuse:
      return get_refusal(from, message);
    case MessageType::kClose:
      return read_close(from, message);
    case MessageType::kConfirm:
    case MessageType::kPause:
      break;
  }
  return {};
}

/// The lengths that a message of a type can have.
struct LengthRange {
  std::size_t least;
  std::size_t most;
};

LengthRange lengths_of(MessageType type) noexcept {
  switch (type) {
    case MessageType::kRequest:
    case MessageType::kTarget:
    case MessageType::kReply:
      return {kMessageHeaderBytes + kEndsBodyBytes + kEndBytes,
              kMessageHeaderBytes + kEndsBodyBytes + (kEndBytes + kSrqBytes) * kMaxQueues};
    case MessageType::kRefuse:
      return {kMessageHeaderBytes + kRefuseBodyBytes, kMaxMessageBytes};
    case MessageType::kClose:
      return {kMessageHeaderBytes + kCloseBodyBytes, kMessageHeaderBytes + kCloseBodyBytes};
    case MessageType::kConfirm:
    case MessageType::kPause:
      break;
  }
  return {kMessageHeaderBytes, kMessageHeaderBytes};
}

Status check_length(MessageType type, std::uint16_t length) {
  const LengthRange range = lengths_of(type);
  if (length < range.least || length > range.most) {
    return failure(std::string("a ") + to_string(type) + " of " + std::to_string(length) + " bytes, not " +
                   std::to_string(range.least) + " to " + std::to_string(range.most));
  }
  return {};
}

}  // namespace

const char* to_string(MessageType type) noexcept {
  switch (type) {
    case MessageType::kRequest:
      return "REQUEST";
    case MessageType::kReply:
      return "REPLY";
    case MessageType::kConfirm:
      return "CONFIRM";
    case MessageType::kRefuse:
      return "REFUSE";
    case MessageType::kTarget:
      return "TARGET";
    case MessageType::kPause:
      return "PAUSE";
    case MessageType::kClose:
      return "CLOSE";
  }
  return "?";
}

void put_header(ByteWriter& to, const MessageHeader& header) {
  to.put(kMessageMagic);
  to.put(kMessageVersion);
  to.put(static_cast<std::uint8_t>(static_cast<std::uint8_t>(header.type) | (header.by_opener ? kByOpener : 0)));
  to.put(std::uint16_t{0});
  to.put_bytes(header.proof);
  to.put(header.sender.job);
  to.put(header.sender.rank);
  to.put(header.target.job);
  to.put(header.target.rank);
  to.put(header.sender_port);
  to.put(header.target_port);
  to.put(header.attempt);
  to.put(header.incarnation);
}

std::vector<std::byte> finish_message(ByteWriter& message) {
  std::vector<std::byte> bytes = message.take();
  store_be(bytes.data() + kLengthOffset, static_cast<std::uint16_t>(bytes.size()));
  return bytes;
}

namespace {

/// Of the byte that has it. It may be none.
MessageType type_of(std::byte byte) noexcept {
  return static_cast<MessageType>(byte & ~std::byte{kByOpener});
}

bool is_known(MessageType type) noexcept {
  return (type >= MessageType::kRequest && type <= MessageType::kPause) || type == MessageType::kClose;
}

/// Magic and version.
Status check_origin(std::span<const std::byte> received) {
  std::array<std::byte, 5> expected{};
  store_be(expected.data(), kMessageMagic);
  expected[4] = std::byte{kMessageVersion};
  const std::size_t known = std::min(received.size(), expected.size());
  if (!std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(known, 4)),
                  received.begin())) {
    return failure("not a message of btl_fabric (wrong magic number)");
  }
  if (known == 5 && received[4] != expected[4]) {
    return failure("message version " + std::to_string(std::to_integer<int>(received[4])) + ", we speak " +
                   std::to_string(kMessageVersion));
  }
  return {};
}

}  // namespace

Status check_start(std::span<const std::byte> received) {
  if (Status origin = check_origin(received); !origin) {
    return origin;
  }
  if (received.size() > 5 && !is_known(type_of(received[5]))) {
    return failure("message type " + std::to_string(std::to_integer<int>(received[5])) + " is unknown");
  }
  return {};
}

MessageHeader get_header(ByteReader& from) {
  MessageHeader header;
  (void)from.take(5);  // magic and version: checked
  const auto type = static_cast<std::byte>(from.get<std::uint8_t>());
  header.type = type_of(type);
  header.by_opener = (type & std::byte{kByOpener}) != std::byte{0};
  header.length = from.get<std::uint16_t>();
  from.get_bytes(header.proof);
  header.sender.job = from.get<std::uint32_t>();
  header.sender.rank = from.get<std::uint32_t>();
  header.target.job = from.get<std::uint32_t>();
  header.target.rank = from.get<std::uint32_t>();
  header.sender_port = from.get<std::uint16_t>();
  header.target_port = from.get<std::uint16_t>();
  header.attempt = from.get<std::uint32_t>();
  header.incarnation = from.get<std::uint32_t>();
  return header;
}

void put_refusal(ByteWriter& to, const Message& refusal, std::size_t most_text) {
  to.put(static_cast<std::uint8_t>(refusal.reason));
  to.put(refusal.newest);
  to.put_string(printable(std::string_view(refusal.text).substr(0, most_text)));
}

Status get_refusal(ByteReader& from, Message& refusal) {
  const auto reason = from.get<std::uint8_t>();
  if (reason < 1 || reason > kLastReason) {
    return failure("refusal reason is " + std::to_string(reason) + ", which is unknown");
  }
  refusal.reason = static_cast<RefuseReason>(reason);
  refusal.newest = from.get<std::uint32_t>();
  const std::string text = from.get_string();
  if (!from.ok() || from.remaining() != 0) {
    return failure("the length of the refusal's text does not fit the message");
  }
  refusal.text = printable(text);
  return {};
}

std::vector<std::byte> encode(const Message& message) {
  ByteWriter to;
  put_header(to, message.header);
  if (has_ends(message.header.type)) {
    put_ends(to, message);
  } else if (message.header.type == MessageType::kRefuse) {
    put_refusal(to, message, kMaxRefuseText);
  } else if (message.header.type == MessageType::kClose) {
    to.put(static_cast<std::uint8_t>(message.confirm_read ? 1 : 0));
  }
  return finish_message(to);
}

std::optional<std::uint8_t> other_version(std::span<const std::byte> received) noexcept {
  if (received.size() < 5 || load_be<std::uint32_t>(received.data()) != kMessageMagic ||
      received[4] == std::byte{kMessageVersion}) {
    return std::nullopt;
  }
  return std::to_integer<std::uint8_t>(received[4]);
}

std::string speaks_other_version(unsigned theirs) {
  return " speaks version " + std::to_string(theirs) + " of the messages of connection set-up, we " +
         std::to_string(kMessageVersion) + ": all processes must run the same btl_fabric";
}

Result<std::optional<MessageHeader>> decode_header(std::span<const std::byte> received) {
  if (Status start = check_start(received); !start) {
    return tl::unexpected(std::move(start).error());
  }
  if (received.size() >= 8) {
    const auto length_told = load_be<std::uint16_t>(received.data() + kLengthOffset);
    if (Status length = check_length(type_of(received[5]), length_told); !length) {
      return tl::unexpected(std::move(length).error());
    }
  }
  if (received.size() < kMessageHeaderBytes) {
    return std::optional<MessageHeader>();
  }
  ByteReader from(received);
  return std::optional(get_header(from));
}

std::array<std::byte, kHelloBytes> encode_hello(const Nonce& nonce) noexcept {
  std::array<std::byte, kHelloBytes> bytes{};
  store_be(bytes.data(), kMessageMagic);
  bytes[4] = std::byte{kMessageVersion};
  bytes[5] = std::byte{kHelloType};
  store_be(bytes.data() + kLengthOffset, static_cast<std::uint16_t>(kHelloBytes));
  std::copy(nonce.begin(), nonce.end(), bytes.begin() + kProofOffset);
  return bytes;
}

Result<std::optional<Nonce>> decode_hello(std::span<const std::byte> received) {
  if (Status origin = check_origin(received); !origin) {
    return tl::unexpected(std::move(origin).error());
  }
  const std::size_t known = std::min(received.size(), kProofOffset);
  const std::array<std::byte, kHelloBytes> expected = encode_hello({});
  if (!std::equal(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(known), expected.begin())) {
    return failure("not a HELLO");
  }
  if (received.size() < kHelloBytes) {
    return std::optional<Nonce>();
  }
  Nonce nonce;
  std::copy_n(received.begin() + kProofOffset, nonce.size(), nonce.begin());
  return std::optional(nonce);
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  Result<std::optional<MessageHeader>> header = decode_header(bytes);
  if (!header) {
    return tl::unexpected(std::move(header).error());
  }
  if (!*header || (*header)->length != bytes.size()) {
    return failure("a message of " + std::to_string(bytes.size()) + " bytes is cut off or too long");
  }
  Message message;
  message.header = **header;
  ByteReader body(bytes.subspan(kMessageHeaderBytes));
  if (Status read = read_body(body, message); !read) {
    return failure(std::string("malformed ") + to_string(message.header.type), read.error());
  }
  return message;
}

}  // namespace fabric::cpc
