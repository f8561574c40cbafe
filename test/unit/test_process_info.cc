// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/base/wire.h"
#include "common/ports/process_info.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

bool is_known(CpcKind kind) {
  return kind >= CpcKind{1} && kind <= CpcKind{4};
}

using test::check_text;
using Bytes = std::vector<std::byte>;

// Where the fields of sample() are; see process_info.cc for the layout.
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kLengthAt = 6;
constexpr std::size_t kListAt = 10 + 16;
constexpr std::size_t kPortsAt = kListAt + 2 + 8 + 1;
constexpr std::size_t kPortSize = 1 + 2 + 16 + 1 + 16 + 1 + 1 + 1 + 1;
constexpr std::size_t kContextsAt = kPortsAt + 1 + 2 * kPortSize;
constexpr std::size_t kRulesAt = kContextsAt + 1;
constexpr std::size_t kRuleSize = 4 + 4 + 1 + 1 + 1;
constexpr std::size_t kOffersAt = kRulesAt + 1 + 2 * kRuleSize;
constexpr std::size_t kBlobSizeAt = kOffersAt + 1 + 1 + 1 + 8;

ProcessInfo sample() {
  ProcessInfo info;
  for (std::size_t i = 0; i < info.token.size(); ++i) {
    info.token[i] = static_cast<std::byte>(i * 17);
  }
  info.receive_queues = "S,128,16";
  info.queue_level = 1;
  info.ports.resize(2);
  info.ports[0] = {
      .link = Transport::kInfiniBand, .lid = 0x1234, .gid = {{0xfe, 0x80}}, .mtu = 5, .subnet = {{0xfe, 0x80}, 64}};
  info.ports[1] = {.link = Transport::kRoce,
                   .lid = 0,
                   .gid = {{0x20, 0x01}},
                   .mtu = 3,
                   .subnet = {{0x20, 0x01}, 128},
                   .path = 7,
                   .roce = 2,
                   .rail = 200};
  info.contexts = 2;
  info.steering = {{3, 7, 65, 73, 1}, {0, UINT32_MAX, 0, 255, 63}};
  info.offers.push_back({CpcKind{1}, 100, 0b11, {std::byte{1}, std::byte{2}, std::byte{3}}});
  info.offers.push_back({CpcKind{3}, 0, 0b10, {}});
  return info;
}

/// sample() with one byte changed.
Bytes changed(std::size_t at, unsigned value) {
  Bytes bytes = encode(sample());
  bytes[at] = static_cast<std::byte>(value);
  return bytes;
}

/// The text of the refusal.
std::string refusal(const Bytes& bytes) {
  const auto info = decode_process_info(bytes, is_known);
  return info ? "accepted" : info.error().text;
}

void fix_length(Bytes& bytes) {
  store_be(bytes.data() + kLengthAt, static_cast<std::uint32_t>(bytes.size()));
}

START_TEST(decodes_what_was_encoded) {
  const auto info = decode_process_info(encode(sample()), is_known);
  ck_assert_msg(info.has_value(), "%s", info ? "" : info.error().text.c_str());
  ck_assert(*info == sample());
}
END_TEST

START_TEST(the_layout_is_as_written) {
  const Bytes bytes = encode(sample());
  ck_assert_uint_eq(bytes.size(), kBlobSizeAt + 2 + 3 + 12);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data()), 0x46414249);
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + kVersionAt), 13);
  ck_assert_uint_eq(load_be<std::uint32_t>(bytes.data() + kLengthAt), bytes.size());
  ck_assert_uint_eq(load_be<std::uint16_t>(bytes.data() + kPortsAt + 2), 0x1234);
  ck_assert_uint_eq(load_be<std::uint64_t>(bytes.data() + kOffersAt + 3), 0b11);
}
END_TEST

START_TEST(takes_the_limits) {
  ProcessInfo info = sample();
  info.receive_queues = std::string(4096, 'S');
  info.ports.resize(kMaxPorts, info.ports[0]);
  info.steering.assign(kMostSteeringRules, {5, 5, 255, 255, 0});
  info.offers.assign(16, {CpcKind{4}, 100, ~std::uint64_t{0}, Bytes(kMaxOfferBlob, std::byte{7})});
  const auto decoded = decode_process_info(encode(info), is_known);
  ck_assert(decoded && *decoded == info);
  info.offers.clear();
  info.receive_queues.clear();
  info.steering.clear();
  const auto small = decode_process_info(encode(info), is_known);
  ck_assert(small && *small == info);
}
END_TEST

START_TEST(refuses_a_wrong_header) {
  check_text(refusal({}), "process info: size is 0, must be at least 10 bytes");
  check_text(refusal(Bytes(9)), "process info: size is 9, must be at least 10 bytes");
  check_text(refusal(changed(3, 'J')), "process info: magic is 0x4641424a, must be 0x46414249");
  check_text(refusal(changed(kVersionAt + 1, 1)), "process info: version is 1, must be 13");
  const Bytes good = encode(sample());
  const std::string size = std::to_string(good.size());
  check_text(refusal(changed(kLengthAt, 1)), "process info: length is " + std::to_string(good.size() + (1 << 24)) +
                                                 ", must be " + size + ", the bytes received");
}
END_TEST

START_TEST(refuses_data_cut_short_or_too_long) {
  const Bytes good = encode(sample());
  for (std::size_t size = 0; size < good.size(); ++size) {
    Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    ck_assert(!decode_process_info(cut, is_known));
    if (size >= kListAt - 16) {  // has a length: a liar must be found as well
      fix_length(cut);
      const std::string text = refusal(cut);
      ck_assert_msg(text.find("the data ends inside") != std::string::npos, "%zu: %s", size, text.c_str());
    }
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  fix_length(longer);
  check_text(refusal(longer), "process info: number of bytes after the last offer is 1, must be 0");
}
END_TEST

START_TEST(refuses_a_wrong_list) {
  check_text(refusal(changed(kListAt, 0x80)), "process info: the data ends inside receive_queues");
  check_text(refusal(changed(kListAt + 3, 0x1b)),
             "process info: byte 1 of receive_queues is 0x1b, must be printable ASCII");
  check_text(refusal(changed(kListAt + 2, 0xff)),
             "process info: byte 0 of receive_queues is 0xff, must be printable ASCII");
  Bytes bytes = encode(sample());
  bytes.insert(bytes.begin() + kListAt + 2, 5000, std::byte{'1'});
  store_be(bytes.data() + kListAt, std::uint16_t{5008});
  fix_length(bytes);
  check_text(refusal(bytes), "process info: length of receive_queues is 5008, must be at most 4096");
}
END_TEST

START_TEST(refuses_wrong_rules) {
  check_text(refusal(changed(kRulesAt, 65)), "process info: number of steering rules is 65, must be at most 64");
  constexpr std::size_t first = kRulesAt + 1;
  check_text(refusal(changed(first + 3, 8)),
             "process info: steering rule 0: first source is 8, must be at most the last, 7");
  check_text(refusal(changed(first + 8, 74)),
             "process info: steering rule 0: first tag is 74, must be at most the last, 73");
  check_text(refusal(changed(first + kRuleSize + 10, 64)),
             "process info: steering rule 1: context is 64, must be at most 63");
}
END_TEST

START_TEST(refuses_wrong_ports) {
  constexpr std::size_t second = kPortsAt + 1 + kPortSize;
  check_text(refusal(changed(kPortsAt, 0)), "process info: number of ports is 0, must be 1 to 64");
  check_text(refusal(changed(kPortsAt, 65)), "process info: number of ports is 65, must be 1 to 64");
  const std::string links = "must be 1 (InfiniBand), 2 (RoCE) or 3 (iWARP)";
  check_text(refusal(changed(second, 0)), "process info: port 1: link is 0, " + links);
  check_text(refusal(changed(second, 4)), "process info: port 1: link is 4, " + links);
  check_text(refusal(changed(second + 19, 0)), "process info: port 1: mtu is 0, must be 1 to 5");
  check_text(refusal(changed(second + 19, 6)), "process info: port 1: mtu is 6, must be 1 to 5");
  check_text(refusal(changed(kContextsAt, 0)),
             "process info: number of contexts is 0, must be a divisor of 2, the number of ports");
  check_text(refusal(changed(kContextsAt, 3)),
             "process info: number of contexts is 3, must be a divisor of 2, the number of ports");
  check_text(refusal(changed(second - 4, 129)), "process info: port 0: subnet bits is 129, must be at most 128");
  check_text(refusal(changed(second - 3, 8)), "process info: port 0: path is 8, must be less than 8");
  check_text(refusal(changed(second - 2, 3)), "process info: port 0: version of RoCE is 3, must be 0 to 2");
}
END_TEST

START_TEST(refuses_wrong_offers) {
  check_text(refusal(changed(kOffersAt, 17)), "process info: number of offers is 17, must be at most 16");
  check_text(refusal(changed(kOffersAt + 2, 101)), "process info: offer 0: priority is 101, must be at most 100");
  check_text(refusal(changed(kOffersAt + 10, 7)),
             "process info: offer 0: port mask is 0x7, must be within 0x3, the ports there are");
  check_text(refusal(changed(kBlobSizeAt, 0x11)),
             "process info: offer 0: length of blob is 4355, must be at most 4096");
  check_text(refusal(changed(kBlobSizeAt + 1, 0xff)), "process info: offer 0: the data ends inside it");
}
END_TEST

START_TEST(skips_offers_of_unknown_kinds) {
  ProcessInfo expected = sample();
  expected.offers.erase(expected.offers.begin());
  Bytes bytes = changed(kOffersAt + 1, 200);
  bytes[kOffersAt + 2] = std::byte{255};  // may mean something to those who know the kind
  const auto info = decode_process_info(bytes, is_known);
  ck_assert(info && *info == expected);
  for (const unsigned unknown : {0U, 5U}) {
    ck_assert(decode_process_info(changed(kOffersAt + 1, unknown), is_known).has_value());
  }
}
END_TEST

ProcessInfo random_info(std::mt19937& random) {
  const auto byte = [&random] { return static_cast<std::uint8_t>(random()); };
  const auto fill = [&](auto& bytes) { std::generate(bytes.begin(), bytes.end(), byte); };
  ProcessInfo info;
  std::generate(info.token.begin(), info.token.end(), [&] { return std::byte{byte()}; });
  info.receive_queues.assign(random() % 60, 'P');
  info.queue_level = byte();
  info.ports.resize(1 + random() % 4);
  for (PortAddress& port : info.ports) {
    port.link = static_cast<Transport>(1 + random() % 3);
    port.lid = static_cast<std::uint16_t>(random());
    fill(port.gid.raw);
    port.mtu = static_cast<std::uint8_t>(1 + random() % 5);
    fill(port.subnet.prefix);
    port.subnet.bits = static_cast<std::uint8_t>(random() % 129);
    port.roce = static_cast<std::uint8_t>(random() % 3);
    port.rail = static_cast<std::uint8_t>(random());
  }
  info.offers.resize(random() % 4);
  for (CpcOffer& offer : info.offers) {
    offer.kind = static_cast<CpcKind>(1 + random() % 4);
    offer.priority = static_cast<std::uint8_t>(random() % 101);
    offer.ports = random() % (std::uint64_t{1} << info.ports.size());
    offer.blob.resize(random() % 20, std::byte{0x5a});
  }
  return info;
}

/// Noise, or something valid that was cut, bent in up to three bits, or both; mostly with a length that fits.
Bytes hostile(std::mt19937& random) {
  Bytes bytes;
  if (random() % 8 == 0) {
    bytes.resize(random() % 300);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    return bytes;
  }
  bytes = encode(random_info(random));
  if (random() % 4 == 0) {
    bytes.resize(random() % bytes.size());
  }
  for (std::size_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips) {
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
  }
  if (bytes.size() >= kLengthAt + 4 && random() % 4 != 0) {
    fix_length(bytes);
  }
  return bytes;
}

START_TEST(hostile_data_is_refused_or_means_something) {
  std::mt19937 random(20240601);
  unsigned accepted = 0;
  unsigned refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const Bytes bytes = hostile(random);
    const auto info = decode_process_info(bytes, is_known);
    if (!info) {
      ck_assert(!info.error().text.empty());
      ++refused;
      continue;
    }
    ++accepted;
    const Bytes again = encode(*info);
    // Offers of unknown kinds are dropped; all else must come out as it went in.
    ck_assert(again.size() < bytes.size() || again == bytes);
    const auto twice = decode_process_info(again, is_known);
    ck_assert(twice && *twice == *info);
  }
  ck_assert_uint_gt(accepted, 200);
  ck_assert_uint_gt(refused, 200);
}
END_TEST

START_TEST(names_are_ordered_by_job_then_rank) {
  const ProcessName name{.job = 1, .rank = 9};
  ck_assert(name < (ProcessName{.job = 2, .rank = 0}));
  ck_assert(name < (ProcessName{.job = 1, .rank = 10}));
  ck_assert(name == (ProcessName{.job = 1, .rank = 9}));
  ck_assert_uint_eq(std::hash<ProcessName>{}(name), std::hash<ProcessName>{}(ProcessName{.job = 1, .rank = 9}));
  ck_assert_uint_ne(std::hash<ProcessName>{}(name), std::hash<ProcessName>{}(ProcessName{.job = 9, .rank = 1}));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("process_info",
                         {decodes_what_was_encoded, the_layout_is_as_written, takes_the_limits, refuses_a_wrong_header,
                          refuses_data_cut_short_or_too_long, refuses_a_wrong_list, refuses_wrong_ports,
                          refuses_wrong_rules, refuses_wrong_offers, skips_offers_of_unknown_kinds,
                          hostile_data_is_refused_or_means_something, names_are_ordered_by_job_then_rank});
}
