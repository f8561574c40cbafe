// SPDX-License-Identifier: BSD-3-Clause
//
// Whoever talks to a node's listener over a socket of its own, with the token or without.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpc/core/message.h"
#include "test/unit/cpc_relay.h"

namespace fabric::test {

inline std::uint16_t port_of(const Node& node) {
  return cpc::decode_oob_offer(node.target().offer)->port_v4;
}

inline void send_bytes(const cpc::FileDescriptor& to, std::span<const std::byte> bytes) {
  (void)::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Waits until the node closes the socket, to which it may have said HELLO. False if it says more.
inline bool is_turned_away(const cpc::FileDescriptor& socket) {
  std::array<std::byte, cpc::kHelloBytes + 1> bytes{};
  return recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) <= static_cast<ssize_t>(cpc::kHelloBytes);
}

/// The key of a channel that we have opened to the node, from its HELLO.
inline cpc::MessageKey key_of(const Node& node, const cpc::FileDescriptor& socket) {
  std::array<std::byte, cpc::kHelloBytes> bytes{};
  ck_assert_int_eq(recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL), static_cast<ssize_t>(bytes.size()));
  const auto nonce = cpc::decode_hello(bytes);
  ck_assert(nonce.has_value() && *nonce);
  return {node.token(), **nonce};
}

/// As the message of that number on its connection.
inline std::vector<std::byte> signed_by(const cpc::MessageKey& key, const cpc::Message& message,
                                        std::uint64_t number = 0) {
  std::vector<std::byte> bytes = encode(message);
  key.sign(bytes, {false, number});
  return bytes;
}

inline cpc::Message request_to(const Node& node, std::uint16_t port = 0) {
  cpc::Message request;
  request.header.sender = {7, 77};
  request.header.target = node.name();
  request.header.sender_port = port;
  request.header.target_port = port;
  request.header.attempt = 1;
  request.header.incarnation = 1;
  request.header.by_opener = true;
  request.address.mtu = 3;
  request.ends = {{1, 1}, {2, 2}};
  return request;
}

}  // namespace fabric::test
