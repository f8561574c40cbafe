// SPDX-License-Identifier: BSD-3-Clause
//
// The proof that a message of connection set-up carries: that its sender knows the token of the listening process. The token
// itself does not travel, and who hears a message can use it for nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/identity.h"

namespace fabric::cpc {

/// A keyed hash of a message (BLAKE2b of 128 bits, RFC 7693).
using Proof = std::array<std::byte, 16>;

/// Bytes that make the proofs of one connection those of no other.
using Nonce = std::array<std::byte, 16>;

/// One that nobody has had or can guess.
[[nodiscard]] Nonce fresh_nonce() noexcept;

/// Where a communication manager carries the messages, the listener has no first word, and the sender's queue pair stands
/// for it: together with the attempt and the incarnation in the header it happens once.
[[nodiscard]] Nonce nonce_of_queue_pair(std::uint32_t qpn) noexcept;

/// A number that only those can tell beforehand who know the token: a keyed hash of `what`.
[[nodiscard]] std::uint32_t secret_number(const JobToken& token, std::span<const std::byte> what) noexcept;

/// Which of the messages it is that one side sends over a connection. Nobody can send what was heard there once more, in either
/// direction. A communication manager carries one message with each key.
struct MessagePlace {
  bool by_listener = false;  ///< the side that has said HELLO
  std::uint64_t number = 0;
};

/// Of a TCP connection, or of a queue pair where a communication manager carries the messages. Any thread.
class MessageKey {
 public:
  /// `token`: of the process that listens, whoever sends.
  MessageKey(const JobToken& token, const Nonce& nonce) noexcept : token_(token), nonce_(nonce) {}

  /// Puts the proof into a message that encode() has made.
  void sign(std::span<std::byte> message, MessagePlace place = {}) const noexcept;
  /// True if a message of exactly these bytes was signed with this key, for that place. In a time that does not depend on where it differs.
  [[nodiscard]] bool has_signed(std::span<const std::byte> message, MessagePlace place = {}) const noexcept;

 private:
  [[nodiscard]] Proof proof_of(std::span<const std::byte> message, MessagePlace place) const noexcept;

  JobToken token_;
  Nonce nonce_;
};

}  // namespace fabric::cpc
