// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/base/wire.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using test::check_text;

std::vector<std::byte> bytes(std::initializer_list<unsigned> values) {
  std::vector<std::byte> made;
  for (const unsigned value : values) {
    made.push_back(static_cast<std::byte>(value));
  }
  return made;
}

template <class T>
void check_round_trip(T value) {
  std::array<std::byte, sizeof(T) + 1> buffer{};
  store_be(buffer.data() + 1, value);  // odd address
  ck_assert_uint_eq(load_be<T>(buffer.data() + 1), value);
}

START_TEST(stores_the_most_significant_byte_first) {
  std::array<std::byte, 8> to{};
  store_be(to.data(), std::uint64_t{0x0102030405060708});
  for (unsigned i = 0; i < 8; ++i) {
    ck_assert_uint_eq(static_cast<unsigned>(to[i]), i + 1);
  }
  store_be(to.data(), std::uint16_t{0xa1b2});
  ck_assert_uint_eq(static_cast<unsigned>(to[0]), 0xa1);
  ck_assert_uint_eq(static_cast<unsigned>(to[1]), 0xb2);
}
END_TEST

START_TEST(loads_what_was_stored) {
  check_round_trip<std::uint8_t>(0xff);
  check_round_trip<std::uint16_t>(0x8001);
  check_round_trip<std::uint32_t>(0xdeadbeef);
  check_round_trip(std::numeric_limits<std::uint64_t>::max() - 1);
}
END_TEST

START_TEST(writer_lays_fields_out_in_order) {
  ByteWriter out;
  out.put(std::uint8_t{1});
  out.put(std::uint32_t{0x02030405});
  out.put_string("ab");
  out.put_bytes(bytes({7, 8}));
  ck_assert(out.bytes() == bytes({1, 2, 3, 4, 5, 0, 2, 'a', 'b', 7, 8}));
  ck_assert_uint_eq(out.take().size(), 11);
}
END_TEST

START_TEST(reader_takes_fields_back) {
  const auto data = bytes({1, 2, 3, 4, 5, 0, 2, 'a', 'b', 7, 8, 9});
  ByteReader in(data);
  ck_assert_uint_eq(in.get<std::uint8_t>(), 1);
  ck_assert_uint_eq(in.get<std::uint32_t>(), 0x02030405);
  check_text(in.get_string(), "ab");
  std::array<std::byte, 2> two{};
  in.get_bytes(two);
  ck_assert_uint_eq(static_cast<unsigned>(two[1]), 8);
  ck_assert_uint_eq(in.remaining(), 1);
  ck_assert_uint_eq(in.take(1).size(), 1);
  ck_assert(in.ok());
  ck_assert_uint_eq(in.remaining(), 0);
}
END_TEST

START_TEST(reading_nothing_at_the_end_is_fine) {
  ByteReader in({});
  in.get_bytes({});
  ck_assert(in.take(0).empty());
  ck_assert(in.ok());
}
END_TEST

START_TEST(a_failure_is_for_good) {
  const auto data = bytes({1, 2, 3});
  ByteReader in(data);
  ck_assert_uint_eq(in.get<std::uint32_t>(), 0);
  ck_assert(!in.ok());
  // Also for fields that would have fitted: nothing must be read out of step.
  ck_assert_uint_eq(in.get<std::uint8_t>(), 0);
  ck_assert(in.take(1).empty());
  check_text(in.get_string(), "");
  ck_assert_uint_eq(in.remaining(), 0);
}
END_TEST

START_TEST(short_bytes_leave_the_target_alone) {
  const auto data = bytes({1, 2});
  ByteReader in(data);
  std::array<std::byte, 3> three{std::byte{9}, std::byte{9}, std::byte{9}};
  in.get_bytes(three);
  ck_assert(!in.ok());
  ck_assert_uint_eq(static_cast<unsigned>(three[0]), 9);
}
END_TEST

START_TEST(a_string_longer_than_the_data_fails) {
  const auto data = bytes({0xff, 0xff, 'a'});
  ByteReader in(data);
  check_text(in.get_string(), "");
  ck_assert(!in.ok());
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "wire", {stores_the_most_significant_byte_first, loads_what_was_stored, writer_lays_fields_out_in_order,
               reader_takes_fields_back, reading_nothing_at_the_end_is_fine, a_failure_is_for_good,
               short_bytes_leave_the_target_alone, a_string_longer_than_the_data_fails});
}
