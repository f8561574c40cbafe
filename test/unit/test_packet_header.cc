// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/base/ring_message.h"
#include "test/unit/check_main.h"

namespace {

using fabric::PacketHeader;
using fabric::PacketKind;
using fabric::RingOffer;
using fabric::RingTrailer;

START_TEST(layout_is_fixed) {
  std::array<std::byte, PacketHeader::kSize> bytes;
  PacketHeader{PacketKind::kCredits, 0x41, {0x0102, 0x0304}, 0x0506}.write(bytes.data());
  const std::array<int, PacketHeader::kSize> expected{1, 0x41, 1, 2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ck_assert_int_eq(std::to_integer<int>(bytes[i]), expected[i]);
  }
}
END_TEST

START_TEST(reads_what_it_wrote) {
  std::array<std::byte, PacketHeader::kSize> bytes;
  PacketHeader{PacketKind::kMessage, 255, {0xffff, 1}, 0x1234}.write(bytes.data());
  PacketHeader header;
  ck_assert(header.read(bytes.data(), bytes.size()));
  ck_assert(header.kind == PacketKind::kMessage);
  ck_assert_uint_eq(header.tag, 255);
  ck_assert_uint_eq(header.grant.credits, 0xffff);
  ck_assert_uint_eq(header.grant.explicit_seen, 1);
  ck_assert_uint_eq(header.ring_slots(), 0x1234);
  ck_assert(!header.is_short_of_credits());
  header.notes |= PacketHeader::kShortOfCredits;
  ck_assert_uint_eq(header.ring_slots(), 0x1234);
  ck_assert(header.is_short_of_credits());
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

bool reads(const RingOffer& offer, std::size_t length = RingOffer::kSize) {
  std::array<std::byte, RingOffer::kSize> bytes;
  offer.write(bytes.data());
  RingOffer read;
  return read.read(bytes.data(), length) && read == offer;
}

START_TEST(offers_of_rings_are_checked) {
  ck_assert(reads({0x1000, 7, 32, 272}));
  ck_assert(reads({}));
  ck_assert(!reads({0x1000, 7, 32, 272}, RingOffer::kSize - 1));
  ck_assert(!reads({0x1004, 7, 32, 272}));
  ck_assert(!reads({0x1000, 7, 32, 276}));
  ck_assert(!reads({0x1000, 7, 32, RingTrailer::kSize}));
  ck_assert(!reads({0x1000, 7, 0, 0}));  // takes nothing back
}
END_TEST

bool ends_a_message(const RingTrailer& trailer, std::size_t slot_size) {
  std::array<std::byte, RingTrailer::kSize> bytes;
  trailer.write(bytes.data());
  RingTrailer read;
  return read.read(bytes.data(), slot_size) && read.size == trailer.size && read.header.tag == trailer.header.tag &&
         bytes[RingTrailer::kLapAt] == static_cast<std::byte>(trailer.lap);
}

START_TEST(trailers_of_messages_in_rings_are_checked) {
  ck_assert(ends_a_message({{PacketKind::kMessage, 65, {}}, 48, 1}, 64));
  ck_assert(ends_a_message({{PacketKind::kMessage, 65, {}}, 0, 255}, 64));
  ck_assert(!ends_a_message({{PacketKind::kMessage, 65, {}}, 49, 1}, 64));
  ck_assert(!ends_a_message({{PacketKind::kMessage, 65, {}}, 0xffff, 1}, 64));
  ck_assert(!ends_a_message({{PacketKind::kMessages, 65, {}}, 8, 1}, 64));
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("packet_header",
                                 {layout_is_fixed, reads_what_it_wrote, refuses_short_packets_and_unknown_kinds,
                                  offers_of_rings_are_checked, trailers_of_messages_in_rings_are_checked});
}
