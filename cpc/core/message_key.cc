// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/message_key.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>

#include "common/base/wire.h"
#include "cpc/core/message.h"

namespace fabric::cpc {
namespace {

const unsigned char* bytes_of(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// Before any other function of the library; more than once does no harm, and any thread may be first.
void prepare() noexcept {
  [[maybe_unused]] static const int ready = sodium_init();
  assert(ready >= 0);
}

}  // namespace

Nonce fresh_nonce() noexcept {
  prepare();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Nonce nonce_of_queue_pair(std::uint32_t qpn) noexcept {
  Nonce nonce{};
  store_be(nonce.data(), qpn);
  return nonce;
}

std::uint32_t secret_number(const JobToken& token, std::span<const std::byte> what) noexcept {
  prepare();
  Proof hash;
  (void)crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(), bytes_of(what), what.size(),
                           bytes_of(token), token.size());
  return load_be<std::uint32_t>(hash.data());
}

Proof MessageKey::proof_of(std::span<const std::byte> message, MessagePlace place) const noexcept {
  constexpr std::size_t kAfterProof = kProofOffset + std::tuple_size_v<Proof>;
  assert(message.size() >= kAfterProof);
  prepare();
  std::array<std::byte, 8> where{};
  store_be(where.data(), place.number << 1 | (place.by_listener ? 1 : 0));
  crypto_generichash_state state;
  Proof proof;
  (void)crypto_generichash_init(&state, bytes_of(token_), token_.size(), proof.size());
  for (const std::span<const std::byte> part : {std::span<const std::byte>(nonce_), std::span<const std::byte>(where),
                                                message.first(kProofOffset), message.subspan(kAfterProof)}) {
    (void)crypto_generichash_update(&state, bytes_of(part), part.size());
  }
  (void)crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
  return proof;
}

void MessageKey::sign(std::span<std::byte> message, MessagePlace place) const noexcept {
  const Proof proof = proof_of(message, place);
  std::copy(proof.begin(), proof.end(), message.begin() + kProofOffset);
}

bool MessageKey::has_signed(std::span<const std::byte> message, MessagePlace place) const noexcept {
  const Proof proof = proof_of(message, place);
  return sodium_memcmp(proof.data(), message.data() + kProofOffset, proof.size()) == 0;
}

}  // namespace fabric::cpc
