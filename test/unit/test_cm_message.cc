// SPDX-License-Identifier: BSD-3-Clause
//
// The private data of the communication manager's messages, and the offers of the CPCs that use it: what is sent comes
// back, and hostile data is refused with the field that is wrong.
#include <limits>
#include <random>

#include "common/base/wire.h"
#include "common/ports/process_info.h"
#include "cpc/rdmacm/cm_message.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

CmMessage sample(MessageType type) {
  CmMessage message;
  message.header.type = type;
  message.header.proof.fill(std::byte{0xa5});
  message.header.sender = {0x01020304, 5};
  message.header.target = {0x0a0b0c0d, 6};
  message.header.sender_port = 7;
  message.header.target_port = 8;
  message.header.attempt = 0x11223344;
  message.header.incarnation = 0x55667788;
  message.queue = 3;
  message.queue_count = 16;
  message.reason = RefuseReason::kCollision;
  message.newest = type == MessageType::kRefuse ? 12 : 0;
  message.text = type == MessageType::kRefuse ? "requests crossed" : "";
  return message;
}

void check_equal(const CmMessage& a, const CmMessage& b) {
  ck_assert(a.header.type == b.header.type && a.header.proof == b.header.proof);
  ck_assert(a.header.sender == b.header.sender && a.header.target == b.header.target);
  ck_assert(a.header.sender_port == b.header.sender_port && a.header.target_port == b.header.target_port);
  ck_assert_uint_eq(a.header.incarnation, b.header.incarnation);
  ck_assert(a.header.attempt == b.header.attempt && a.queue == b.queue && a.queue_count == b.queue_count);
  test::check_text(a.text, b.text);
  ck_assert(a.header.type != MessageType::kRefuse || (a.reason == b.reason && a.newest == b.newest));
}

void check_refused(const std::vector<std::byte>& bytes, const std::string& why) {
  test::check_error_has(decode_cm_message(bytes), why);
}

START_TEST(what_is_sent_comes_back) {
  for (const MessageType type : {MessageType::kRequest, MessageType::kReply, MessageType::kRefuse}) {
    std::vector<std::byte> bytes = encode(sample(type));
    ck_assert(type == MessageType::kRefuse || bytes.size() <= kMaxRequestPrivateData);
    for (const std::size_t padding : {0U, 1U, 7U, 150U}) {
      bytes.resize(bytes.size() + padding);
      const auto message = decode_cm_message(bytes);
      ck_assert_msg(message.has_value(), "%s", message ? "" : message.error().text.c_str());
      check_equal(*message, sample(type));
    }
  }
}
END_TEST

START_TEST(layout_is_as_documented) {
  const std::vector<std::byte> bytes = encode(sample(MessageType::kRequest));
  ck_assert_uint_eq(bytes.size(), kCmHeaderBytes);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data()), kMessageMagic);
  ck_assert_uint_eq(std::to_integer<unsigned>(bytes[5]), 1);
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + 6), kCmHeaderBytes);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 24), 0x01020304);
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + 42), 8);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 44), 0x11223344);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 48), 0x55667788);
  ck_assert_uint_eq(std::to_integer<unsigned>(bytes[52]), 3);
  ck_assert_uint_eq(std::to_integer<unsigned>(bytes[53]), 16);
}
END_TEST

START_TEST(long_texts_are_cut_and_cleaned) {
  CmMessage refusal = sample(MessageType::kRefuse);
  refusal.text = std::string(500, 'x') + "end";
  refusal.text[3] = '\n';
  const auto bytes = encode(refusal);
  ck_assert_uint_le(bytes.size(), 148);
  const auto message = decode_cm_message(bytes);
  ck_assert(message.has_value());
  test::check_text(message->text, "xxx?" + std::string(kMaxCmText - 4, 'x'));
}
END_TEST

START_TEST(hostile_data_is_refused) {
  const std::vector<std::byte> good = encode(sample(MessageType::kRequest));
  const auto with = [&](std::size_t at, unsigned value) {
    std::vector<std::byte> bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  check_refused({}, "fewer than 54");
  check_refused({good.begin(), good.end() - 1}, "fewer than 54");
  check_refused(with(0, 0), "wrong magic number");
  check_refused(with(4, 9), "message version 9");
  for (const unsigned type : {0U, 7U, 255U}) {
    check_refused(with(5, type), "message type");
  }
  check_refused(with(5, 3), "a CONFIRM in private data");
  check_refused(with(5, 5), "a TARGET in private data");
  check_refused(with(5, 4), "a REFUSE of 54 bytes");
  for (const unsigned length : {0U, 53U, 55U, 255U}) {
    check_refused(with(7, length), "a REQUEST of " + std::to_string(length));
  }
  check_refused(with(6, 1), "a REQUEST of " + std::to_string(256 + kCmHeaderBytes));
  check_refused(with(52, 16), "queue index is 16 of 16");
  check_refused(with(52, 255), "queue index is 255");
  check_refused(with(53, 0), "queue count is 0");
  check_refused(with(53, 17), "queue count is 17");
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{1});
  check_refused(longer, "something follows");
  std::vector<std::byte> refusal = encode(sample(MessageType::kRefuse));
  for (const unsigned reason : {0U, 12U, 255U}) {
    refusal[kCmHeaderBytes] = static_cast<std::byte>(reason);
    check_refused(refusal, "refusal reason is " + std::to_string(reason));
  }
}
END_TEST

START_TEST(random_changes_never_get_past_the_ranges) {
  std::minstd_rand random(4242);
  const std::vector<std::byte> good = encode(sample(MessageType::kRefuse));
  for (int round = 0; round < 100000; ++round) {
    std::vector<std::byte> bytes = good;
    for (unsigned changes = static_cast<unsigned>(random() % 4); changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % 8 == 0 ? random() % bytes.size() : bytes.size());
    if (const auto message = decode_cm_message(bytes)) {
      ck_assert(message->queue < message->queue_count && message->queue_count <= kMaxQueues);
      ck_assert_uint_le(message->text.size(), kMaxCmText);
    } else {
      ck_assert(!message.error().text.empty());
    }
  }
}
END_TEST

START_TEST(offers_come_back) {
  std::vector<CmAddress> addresses;
  for (std::uint16_t i = 0; i < kMaxPorts; ++i) {
    CmAddress one;
    one.port_index = i;
    one.address.fill(static_cast<std::uint8_t>(i));
    one.service = std::numeric_limits<std::uint64_t>::max() - i;
    one.pkey = static_cast<std::uint16_t>(0xffff - i);
    addresses.push_back(one);
  }
  const auto blob = encode(addresses);
  ck_assert_uint_le(blob.size(), kMaxOfferBlob);
  const auto again = decode_cm_addresses(blob);
  ck_assert(again && *again == addresses);
}
END_TEST

START_TEST(hostile_offers_are_refused) {
  const std::vector<CmAddress> one(1);
  const auto good = encode(one);
  const auto refused = [](std::vector<std::byte> blob, const char* why) {
    test::check_error_has(decode_cm_addresses(blob), why);
  };
  refused({}, "version");
  refused({good.begin(), good.begin() + 1}, "version");
  refused({good.begin(), good.end() - 1}, "27 bytes for 1");
  auto bytes = good;
  bytes[0] = std::byte{7};
  refused(bytes, "version 7");
  bytes = good;
  bytes[1] = std::byte{2};
  refused(bytes, "28 bytes for 2");
  bytes[1] = std::byte{255};
  refused(bytes, "for 255");
  bytes = good;
  bytes[3] = std::byte{kMaxPorts};
  refused(bytes, "port 64");
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "cm_message",
      {what_is_sent_comes_back, layout_is_as_documented, long_texts_are_cut_and_cleaned, hostile_data_is_refused,
       random_changes_never_get_past_the_ranges, offers_come_back, hostile_offers_are_refused});
}
