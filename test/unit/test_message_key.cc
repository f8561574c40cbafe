// SPDX-License-Identifier: BSD-3-Clause
//
// The proofs of connection set-up: as documented, and different with everything that they depend on.
#include <set>
#include <vector>

#include "cpc/core/message.h"
#include "cpc/core/message_key.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

using Bytes = std::vector<std::byte>;

template <class Array>
Array filled(int value) {
  Array array;
  array.fill(static_cast<std::byte>(value));
  return array;
}

const JobToken kToken = filled<JobToken>(0xa5);
const Nonce kNonce = filled<Nonce>(0x5a);

/// 60 bytes, as if encode() had made them.
Bytes message() {
  Bytes bytes;
  for (int i = 0; i < 60; ++i) {
    bytes.push_back(static_cast<std::byte>(i));
  }
  return bytes;
}

Bytes signed_with(const JobToken& token, const Nonce& nonce, MessagePlace place = {}) {
  Bytes bytes = message();
  MessageKey(token, nonce).sign(bytes, place);
  return bytes;
}

std::string proof_in(const Bytes& message) {
  std::string proof;
  for (std::size_t i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(message[kProofOffset + i]));
    proof += digits;
  }
  return proof;
}

/// Of Python: hashlib.blake2b(nonce + place.to_bytes(8, "big") + message[:8] + message[24:], key=token, digest_size=16), with a
/// place of 0, and of 5 << 1 | 1
START_TEST(a_proof_is_what_another_library_computes) {
  const Bytes bytes = signed_with(kToken, kNonce);
  test::check_text(proof_in(bytes), "afe3fb7fceb7dee5d7c4341ed3f2be6c");
  ck_assert(MessageKey(kToken, kNonce).has_signed(bytes));
  test::check_text(proof_in(signed_with(kToken, kNonce, {true, 5})), "c828ed62ce8322d377c45954191805b6");
}
END_TEST

/// What was heard is good once, and in one direction.
START_TEST(a_proof_is_good_in_one_place) {
  const MessageKey key(kToken, kNonce);
  const Bytes third = signed_with(kToken, kNonce, {false, 2});
  for (std::uint64_t number = 0; number < 10; ++number) {
    ck_assert(key.has_signed(third, {false, number}) == (number == 2));
    ck_assert(!key.has_signed(third, {true, number}));
  }
}
END_TEST

START_TEST(every_bit_counts) {
  const MessageKey key(kToken, kNonce);
  const Bytes good = signed_with(kToken, kNonce);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ck_assert(!key.has_signed(bytes));
  }
  ck_assert(!key.has_signed(std::span(good).first(good.size() - 1)));
  for (std::size_t bit = 0; bit < 128; ++bit) {
    JobToken token = kToken;
    token[bit / 8] ^= std::byte{1} << (bit % 8);
    ck_assert(!MessageKey(token, kNonce).has_signed(good));
    Nonce nonce = kNonce;
    nonce[bit / 8] ^= std::byte{1} << (bit % 8);
    ck_assert(!MessageKey(kToken, nonce).has_signed(good));
  }
}
END_TEST

START_TEST(secret_numbers_depend_on_the_token) {
  const Bytes what = message();
  ck_assert_uint_eq(secret_number(kToken, what), 0x668742e3U);
  JobToken other = kToken;
  other[0] ^= std::byte{1};
  ck_assert_uint_ne(secret_number(other, what), secret_number(kToken, what));
  ck_assert_uint_ne(secret_number(kToken, std::span(what).first(59)), secret_number(kToken, what));
}
END_TEST

START_TEST(nonces_are_never_the_same) {
  std::set<Nonce> seen;
  for (int i = 0; i < 1000; ++i) {
    ck_assert(seen.insert(fresh_nonce()).second);
  }
  ck_assert(nonce_of_queue_pair(1) != nonce_of_queue_pair(0x1000000));
  ck_assert(nonce_of_queue_pair(0) == Nonce{});
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "message_key", {a_proof_is_what_another_library_computes, a_proof_is_good_in_one_place, every_bit_counts,
                      secret_numbers_depend_on_the_token, nonces_are_never_the_same});
}
