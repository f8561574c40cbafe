// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "btl_fabric/base/packet_header.h"
#include "test/unit/check_main.h"

namespace {

using fabric::PacketHeader;
using fabric::PacketKind;

START_TEST(layout_is_fixed) {
  std::array<std::byte, PacketHeader::kSize> bytes;
  PacketHeader{PacketKind::kCredits, 0x41, {0x0102, 0x0304}}.write(bytes.data());
  const std::array<int, PacketHeader::kSize> expected{1, 0x41, 1, 2, 3, 4, 0, 0};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ck_assert_int_eq(std::to_integer<int>(bytes[i]), expected[i]);
  }
}
END_TEST

START_TEST(reads_what_it_wrote) {
  std::array<std::byte, PacketHeader::kSize> bytes;
  PacketHeader{PacketKind::kMessage, 255, {0xffff, 1}}.write(bytes.data());
  PacketHeader header;
  ck_assert(header.read(bytes.data(), bytes.size()));
  ck_assert(header.kind == PacketKind::kMessage);
  ck_assert_uint_eq(header.tag, 255);
  ck_assert_uint_eq(header.grant.credits, 0xffff);
  ck_assert_uint_eq(header.grant.explicit_seen, 1);
}
END_TEST

START_TEST(refuses_short_packets_and_unknown_kinds) {
  std::array<std::byte, PacketHeader::kSize> bytes{};
  PacketHeader header;
  ck_assert(!header.read(bytes.data(), PacketHeader::kSize - 1));
  bytes[0] = std::byte{0x7f};
  ck_assert(!header.read(bytes.data(), bytes.size()));
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("packet_header",
                                 {layout_is_fixed, reads_what_it_wrote, refuses_short_packets_and_unknown_kinds});
}
