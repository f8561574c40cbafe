// SPDX-License-Identifier: BSD-3-Clause
#include <functional>
#include <iterator>
#include <random>

#include "common/base/wire.h"
#include "cpc/core/message.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

Message example(MessageType type) {
  Message message;
  message.header.type = type;
  message.header.proof.fill(std::byte{0xa5});
  message.header.sender = {7, 0x01020304};
  message.header.target = {8, 2};
  message.header.sender_port = 3;
  message.header.target_port = 0x405;
  message.header.attempt = 0x01000002;
  message.header.incarnation = 0x0a0b0c0d;
  message.header.by_opener = true;
  message.confirm_read = true;
  message.address.link = Transport::kRoce;
  message.address.lid = 0x1234;
  message.address.gid.raw[0] = 0xfe;
  message.address.gid.raw[15] = 9;
  message.address.mtu = 5;
  message.address.subnet = {message.address.gid.raw, 64};
  message.ends = {{1, 2}, {0xffffff, 0xfffffe}, {0x10203, 0}};
  message.xrc = {0xabcdef, {0x111111, 7}};
  message.reason = RefuseReason::kQueueMismatch;
  message.newest = 0x07000001;
  message.text = "we have 2 queues";
  return message;
}

constexpr MessageType kTypes[] = {MessageType::kRequest, MessageType::kReply,  MessageType::kConfirm,
                                  MessageType::kRefuse,  MessageType::kTarget, MessageType::kPause,
                                  MessageType::kClose};

START_TEST(messages_come_back) {
  for (const MessageType type : kTypes) {
    const Message sent = example(type);
    const std::vector<std::byte> bytes = encode(sent);
    const Result<Message> got = decode_message(bytes);
    ck_assert_msg(got.has_value(), "%s", got ? "" : got.error().text.c_str());
    ck_assert(got->header.type == type && got->header.proof == sent.header.proof);
    ck_assert_uint_eq(got->header.length, bytes.size());
    ck_assert(got->header.sender == sent.header.sender && got->header.target == sent.header.target);
    ck_assert_uint_eq(got->header.incarnation, 0x0a0b0c0d);
    ck_assert(got->header.sender_port == 3 && got->header.target_port == 0x405 && got->header.attempt == 0x01000002);
    ck_assert(got->header.by_opener);
    if (type == MessageType::kRequest || type == MessageType::kReply || type == MessageType::kTarget) {
      ck_assert(got->address == sent.address && got->ends == sent.ends && got->xrc == sent.xrc);
    }
    if (type == MessageType::kRefuse) {
      ck_assert(got->reason == sent.reason && got->text == sent.text && got->newest == sent.newest);
    }
    ck_assert(got->confirm_read == (type == MessageType::kClose));
  }
}
END_TEST

START_TEST(layout_is_as_documented) {
  const std::vector<std::byte> bytes = encode(example(MessageType::kRequest));
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data()), 0x62664f42);
  ck_assert_uint_eq(std::to_integer<unsigned>(bytes[5]), 0x81);
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + 6), bytes.size());
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 28), 0x01020304);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 44), 0x01000002);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 48), 0x0a0b0c0d);
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + 54), 0x1234);
  ck_assert_int_eq(std::to_integer<int>(bytes[89]), 3);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 98), 0xffffff);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 114), 0xabcdef);
  ck_assert_int_eq(std::to_integer<int>(bytes[118]), 2);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + 119), 0x111111);
  ck_assert_uint_eq(bytes.size(), 95 + 3 * 8 + 2 * 4);
}
END_TEST

START_TEST(a_hello_is_read_as_it_arrives) {
  Nonce nonce;
  nonce.fill(std::byte{0x5a});
  const auto hello = encode_hello(nonce);
  for (std::size_t size = 0; size < hello.size(); ++size) {
    const auto part = decode_hello(std::span(hello).first(size));
    ck_assert(part.has_value() && !*part);
  }
  ck_assert(*decode_hello(hello) == nonce);
  for (std::size_t at = 0; at < kProofOffset; ++at) {
    auto wrong = hello;
    wrong[at] ^= std::byte{0x80};
    ck_assert(!decode_hello(std::span(wrong).first(at + 1)).has_value());
    ck_assert(!decode_hello(wrong).has_value());
  }
  ck_assert(!decode_header(hello).has_value());                      // it is no message
  ck_assert(!decode_hello(encode(example(kTypes[0]))).has_value());  // and no message is one
  auto newer = hello;
  newer[4] = std::byte{200};
  ck_assert(other_version(newer) == 200);
}
END_TEST

START_TEST(headers_are_read_as_they_arrive) {
  const std::vector<std::byte> bytes = encode(example(MessageType::kReply));
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto header = decode_header(std::span(bytes).first(size));
    ck_assert(header.has_value());
    ck_assert(header->has_value() == (size >= kMessageHeaderBytes));
    ck_assert(size == bytes.size() || !decode_message(std::span(bytes).first(size)));
  }
}
END_TEST

void refused(const char* expected, MessageType type, const std::function<void(std::vector<std::byte>&)>& change) {
  std::vector<std::byte> bytes = encode(example(type));
  change(bytes);
  test::check_error_has(decode_message(bytes), expected);
}

START_TEST(every_field_is_checked) {
  using Bytes = std::vector<std::byte>;
  refused("magic", MessageType::kRequest, [](Bytes& b) { b[0] = std::byte{0}; });
  refused("version 1", MessageType::kRequest, [](Bytes& b) { b[4] = std::byte{1}; });
  refused("type 7", MessageType::kRequest, [](Bytes& b) { b[5] = std::byte{7}; });
  refused("CONFIRM of", MessageType::kRequest, [](Bytes& b) { b[5] = std::byte{3}; });
  refused("65535 bytes", MessageType::kRequest, [](Bytes& b) { store_be(b.data() + 6, std::uint16_t{0xffff}); });
  refused("0 bytes", MessageType::kConfirm, [](Bytes& b) { store_be(b.data() + 6, std::uint16_t{0}); });
  refused("link is 4", MessageType::kRequest, [](Bytes& b) { b[52] = std::byte{4}; });
  refused("MTU code is 0", MessageType::kReply, [](Bytes& b) { b[53] = std::byte{0}; });
  refused("129 bits", MessageType::kReply, [](Bytes& b) { b[88] = std::byte{129}; });
  refused("queue pair count is 0", MessageType::kReply, [](Bytes& b) { b[89] = std::byte{0}; });
  refused("queue pair count is 17", MessageType::kReply, [](Bytes& b) { b[89] = std::byte{17}; });
  // The rest of the third end is then read as what follows the ends.
  refused("XRC queue count is 171", MessageType::kReply, [](Bytes& b) {
    b[89] = std::byte{2};
    b[110] = std::byte{171};
  });
  refused("does not fit 3 queue pairs", MessageType::kReply, [](Bytes& b) { b[118] = std::byte{1}; });
  refused("does not fit 3 queue pairs", MessageType::kReply, [](Bytes& b) { b[118] = std::byte{3}; });
  refused("XRC queue count is 17", MessageType::kTarget, [](Bytes& b) { b[118] = std::byte{17}; });
  refused("target 4289449455 has more than 24 bits", MessageType::kTarget, [](Bytes& b) { b[114] = std::byte{0xff}; });
  refused("XRC queue 1: number", MessageType::kReply, [](Bytes& b) { b[123] = std::byte{1}; });
  refused("24 bits", MessageType::kReply, [](Bytes& b) { b[90] = std::byte{1}; });
  refused("24 bits", MessageType::kReply, [](Bytes& b) { b[94] = std::byte{1}; });
  refused("reason is 0", MessageType::kRefuse, [](Bytes& b) { b[52] = std::byte{0}; });
  refused("reason is 12", MessageType::kRefuse, [](Bytes& b) { b[52] = std::byte{12}; });
  refused("length of the refusal", MessageType::kRefuse, [](Bytes& b) { b[58] = std::byte{1}; });
  refused("cut off", MessageType::kRefuse, [](Bytes& b) { b.push_back(std::byte{0}); });
}
END_TEST

START_TEST(texts_are_bounded_and_printable) {
  Message message = example(MessageType::kRefuse);
  message.text = std::string(2000, 'x');
  message.text[0] = '\x1b';
  message.text[1] = '\n';
  std::vector<std::byte> bytes = encode(message);
  ck_assert_uint_eq(bytes.size(), kMaxMessageBytes);
  bytes[68] = std::byte{0x07};  // what a hostile sender would not have cleaned
  const auto got = decode_message(bytes);
  ck_assert(got.has_value());
  ck_assert_uint_eq(got->text.size(), kMaxRefuseText);
  test::check_text(got->text.substr(0, 10), "??xxxxxxx?");
}
END_TEST

/// 1,000 messages with bits flipped, cut, grown, or random: refused with a reason, or decoded to something in range.
START_TEST(damaged_messages_do_no_harm) {
  std::minstd_rand random(99);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> bytes = encode(example(kTypes[random() % std::size(kTypes)]));
    switch (random() % 4) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes.resize(bytes.size() + 1 + random() % 40);
        break;
      case 2:
        for (std::byte& byte : bytes) {
          byte = static_cast<std::byte>(random());
        }
        break;
      default:
        break;
    }
    for (unsigned flips = static_cast<unsigned>(random() % 4); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << random() % 8);
    }
    const auto got = decode_message(bytes);
    if (!got) {
      ck_assert(!got.error().text.empty());
      continue;
    }
    ck_assert(got->ends.size() <= kMaxQueues && got->xrc.srqs.size() <= kMaxQueues);
    ck_assert(got->text.size() <= kMaxRefuseText);
    ck_assert(got->header.type == MessageType::kRefuse || encode(*got) == bytes);  // a text is cleaned
  }
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite("message", {messages_come_back, layout_is_as_documented, a_hello_is_read_as_it_arrives,
                                             headers_are_read_as_they_arrive, every_field_is_checked,
                                             texts_are_bounded_and_printable, damaged_messages_do_no_harm});
}
