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

/// Magic, version, type and length, and that what follows the message is padding.
Status check_frame(std::span<const std::byte> bytes, const MessageHeader& header) {
  if (header.type != MessageType::kRequest && header.type != MessageType::kReply &&
      header.type != MessageType::kRefuse) {
    return failure(std::string("a ") + to_string(header.type) + " in private data");
  }
  const bool refuses = header.type == MessageType::kRefuse;
  const std::size_t least = kCmHeaderBytes + (refuses ? kRefuseBodyBytes : 0);
  const std::size_t most = refuses ? kMaxRejectPrivateData : least;
  if (header.length < least || header.length > most || header.length > bytes.size()) {
    return failure(std::string("a ") + to_string(header.type) + " of " + std::to_string(header.length) +
                   " bytes, not " + std::to_string(least) + " to " + std::to_string(std::min(most, bytes.size())));
  }
  const auto padding = bytes.subspan(header.length);
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

}  // namespace

std::vector<std::byte> encode(const CmMessage& message) {
  ByteWriter to;
  put_header(to, message.header);
  to.put(message.queue);
  to.put(message.queue_count);
  if (message.header.type == MessageType::kRefuse) {
    put_refusal(to, message, kMaxCmText);
  }
  return finish_message(to);
}

Result<CmMessage> decode_cm_message(std::span<const std::byte> private_data) {
  if (Status start = check_start(private_data); !start) {
    return tl::unexpected(std::move(start).error());
  }
  if (private_data.size() < kCmHeaderBytes) {
    return failure("private data of " + std::to_string(private_data.size()) + " bytes, fewer than " +
                   std::to_string(kCmHeaderBytes));
  }
  ByteReader from(private_data);
  CmMessage message;
  message.header = get_header(from);
  message.queue = from.get<std::uint8_t>();
  message.queue_count = from.get<std::uint8_t>();
  Status good = check_frame(private_data, message.header);
  if (good) {
    good = check_queue(message);
  }
  if (good && message.header.type == MessageType::kRefuse) {
    ByteReader body(private_data.subspan(kCmHeaderBytes, message.header.length - kCmHeaderBytes));
    good = get_refusal(body, message);
  }
  if (!good) {
    return tl::unexpected(std::move(good).error());
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
