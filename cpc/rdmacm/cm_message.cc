// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/rdmacm/cm_message.h"

#include <algorithm>
#include <cassert>

#include "common/base/wire.h"
#include "common/ports/process_info.h"

namespace fabric::cpc {
namespace {

constexpr std::uint8_t kAddressVersion = 1;
constexpr std::size_t kAddressBytes = 2 + 16 + 8 + 2;
constexpr std::size_t kLengthOffset = 6;
constexpr std::size_t kRefuseBytes = 5;  ///< before the text

std::string printable(std::string_view text) {
  std::string clean(text.substr(0, kMaxCmText));
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return clean;
}

/// Magic, version, type and length, and that what follows the message is padding.
Status check_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kCmHeaderBytes) {
    return failure("private data of " + std::to_string(bytes.size()) + " bytes, fewer than " +
                   std::to_string(kCmHeaderBytes));
  }
  if (load_be<std::uint32_t>(bytes.data()) != kCmMagic) {
    return failure("not a message of btl_fabric (wrong magic number)");
  }
  const auto version = std::to_integer<unsigned>(bytes[4]);
  if (version != kCmVersion) {
    return failure("message version " + std::to_string(version) + ", we speak " + std::to_string(kCmVersion));
  }
  const auto type = static_cast<MessageType>(bytes[5]);
  if (type != MessageType::kRequest && type != MessageType::kReply && type != MessageType::kRefuse) {
    return failure("message type " + std::to_string(std::to_integer<unsigned>(bytes[5])) + " is unknown");
  }
  const auto length = std::to_integer<std::size_t>(bytes[kLengthOffset]);
  const std::size_t least = kCmHeaderBytes + (type == MessageType::kRefuse ? kRefuseBytes : 0);
  const std::size_t most = type == MessageType::kRefuse ? least + kMaxCmText : least;
  if (length < least || length > most || length > bytes.size()) {
    return failure(std::string("a ") + to_string(type) + " of " + std::to_string(length) + " bytes, not " +
                   std::to_string(least) + " to " + std::to_string(std::min(most, bytes.size())));
  }
  const auto padding = bytes.subspan(length);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte one) { return one != std::byte{0}; })) {
    return failure("something follows the message");
  }
  return {};
}

Status check_queue(const CmMessage& message) {
  if (message.queue_count < 1 || message.queue_count > kMaxQueues) {
    return failure("queue count is " + std::to_string(message.queue_count) + ", not 1 to " +
                   std::to_string(kMaxQueues));
  }
  if (message.queue >= message.queue_count) {
    return failure("queue index is " + std::to_string(message.queue) + " of " + std::to_string(message.queue_count));
  }
  return {};
}

Status read_refusal(ByteReader& from, std::size_t text_bytes, CmMessage& message) {
  const auto reason = from.get<std::uint8_t>();
  if (reason < 1 || reason > static_cast<std::uint8_t>(RefuseReason::kOtherVersion)) {
    return failure("refusal reason is " + std::to_string(reason) + ", which is unknown");
  }
  message.reason = static_cast<RefuseReason>(reason);
  message.newest = from.get<std::uint32_t>();
  const auto text = from.take(text_bytes);
  message.text = printable({reinterpret_cast<const char*>(text.data()), text.size()});
  return {};
}

}  // namespace

std::vector<std::byte> encode(const CmMessage& message) {
  const MessageHeader& header = message.header;
  ByteWriter to;
  to.put(kCmMagic);
  to.put(kCmVersion);
  to.put(static_cast<std::uint8_t>(header.type));
  to.put(std::uint8_t{0});
  to.put(message.queue);
  to.put(message.queue_count);
  put_parties(to, header);
  if (header.type == MessageType::kRefuse) {
    to.put(static_cast<std::uint8_t>(message.reason));
    to.put(message.newest);
    const std::string text = printable(message.text);
    to.put_bytes(std::as_bytes(std::span(text)));
  }
  std::vector<std::byte> bytes = to.take();
  bytes[kLengthOffset] = static_cast<std::byte>(bytes.size());
  return bytes;
}

std::optional<std::uint8_t> other_cm_version(std::span<const std::byte> private_data) noexcept {
  if (private_data.size() < 5 || load_be<std::uint32_t>(private_data.data()) != kCmMagic ||
      private_data[4] == std::byte{kCmVersion}) {
    return std::nullopt;
  }
  return std::to_integer<std::uint8_t>(private_data[4]);
}

Result<CmMessage> decode_cm_message(std::span<const std::byte> private_data) {
  if (Status frame = check_frame(private_data); !frame) {
    return tl::unexpected(std::move(frame).error());
  }
  ByteReader from(private_data);
  CmMessage message;
  (void)from.take(5);  // magic and version: checked
  message.header.type = static_cast<MessageType>(from.get<std::uint8_t>());
  message.header.length = from.get<std::uint8_t>();
  message.queue = from.get<std::uint8_t>();
  message.queue_count = from.get<std::uint8_t>();
  get_parties(from, message.header);
  if (Status queue = check_queue(message); !queue) {
    return tl::unexpected(std::move(queue).error());
  }
  if (message.header.type == MessageType::kRefuse) {
    const std::size_t text_bytes = message.header.length - kCmHeaderBytes - kRefuseBytes;
    if (Status refusal = read_refusal(from, text_bytes, message); !refusal) {
      return tl::unexpected(std::move(refusal).error());
    }
  }
  return message;
}

std::vector<std::byte> encode(std::span<const CmAddress> addresses) {
  assert(addresses.size() <= kMaxPorts);
  ByteWriter to;
  to.put(kAddressVersion);
  to.put(static_cast<std::uint8_t>(addresses.size()));
  for (const CmAddress& one : addresses) {
    to.put(one.port_index);
    to.put_bytes(std::as_bytes(std::span(one.address)));
    to.put(one.service);
    to.put(one.pkey);
  }
  return to.take();
}

Result<std::vector<CmAddress>> decode_cm_addresses(std::span<const std::byte> blob) {
  ByteReader from(blob);
  const auto version = from.get<std::uint8_t>();
  const auto count = from.get<std::uint8_t>();
  if (!from.ok() || version != kAddressVersion) {
    return failure("its offer has version " + std::to_string(version) + ", we speak " +
                   std::to_string(kAddressVersion));
  }
  if (count > kMaxPorts || from.remaining() != count * kAddressBytes) {
    return failure("its offer has " + std::to_string(from.remaining()) + " bytes for " + std::to_string(count) +
                   " addresses of " + std::to_string(kAddressBytes));
  }
  std::vector<CmAddress> addresses;
  for (unsigned i = 0; i < count; ++i) {
    CmAddress one;
    one.port_index = from.get<std::uint16_t>();
    from.get_bytes(std::as_writable_bytes(std::span(one.address)));
    one.service = from.get<std::uint64_t>();
    one.pkey = from.get<std::uint16_t>();
    if (one.port_index >= kMaxPorts) {
      return failure("its offer names port " + std::to_string(one.port_index) + ", not 0 to " +
                     std::to_string(kMaxPorts - 1));
    }
    addresses.push_back(one);
  }
  return addresses;
}

}  // namespace fabric::cpc
