// SPDX-License-Identifier: BSD-3-Clause
//
// A link's arithmetic, by times that the test makes up: when messages arrive that share ports; and its settings, as written.
#include <atomic>
#include <thread>
#include <vector>

#include "fabric/config.h"
#include "link/wire.h"
#include "test/unit/check_main.h"

namespace {

using namespace softhca;
using namespace softhca::link;

constexpr uint64_t kStart = 1'000'000'000;
constexpr uint64_t k100G = 100'000'000'000;

START_TEST(time_on_the_wire) {
  ck_assert_uint_eq(transfer_ns(125'000, 1'000'000'000), 1'000'000);
  ck_assert_uint_eq(transfer_ns(64, k100G), 5);
  ck_assert_uint_eq(transfer_ns(1 << 30, 1'000'000), 8'589'934'592'000);  // the largest message on a slow link
  ck_assert_uint_eq(transfer_ns(0, k100G), 0);
  ck_assert_uint_eq(transfer_ns(4096, 0), 0);  // no limit
}
END_TEST

/// Messages that are posted at once leave one after another; one that is posted later finds a free port.
START_TEST(a_port_sends_one_after_another) {
  std::atomic<uint64_t> port{0};
  for (uint64_t i = 1; i <= 10; ++i) ck_assert_uint_eq(occupy(port, kStart, 700), kStart + i * 700);
  ck_assert_uint_eq(occupy(port, kStart + 3500, 700), kStart + 7700);
  ck_assert_uint_eq(occupy(port, kStart + 20'000, 700), kStart + 20'700);
  ck_assert_uint_eq(occupy(port, kStart + 20'100, 0), kStart + 20'700);  // a message without bytes overtakes nothing
  ck_assert_uint_eq(port.load(), kStart + 20'700);
}
END_TEST

/// All who use a port get what it carries, and no more, however they interleave.
START_TEST(threads_share_a_port) {
  constexpr unsigned kThreads = 4;
  constexpr unsigned kMessages = 20'000;
  std::atomic<uint64_t> port{0};
  std::vector<std::vector<uint64_t>> ends(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : ends)
    threads.emplace_back([&port, &mine] {
      for (unsigned i = 0; i < kMessages; ++i) mine.push_back(occupy(port, kStart, 50));
    });
  for (std::thread& thread : threads) thread.join();
  ck_assert_uint_eq(port.load(), kStart + uint64_t{kThreads} * kMessages * 50);
  std::vector<bool> taken(kThreads * kMessages + 1);
  for (const auto& mine : ends)
    for (const uint64_t end : mine) {
      ck_assert_uint_eq((end - kStart) % 50, 0);
      ck_assert(!taken[(end - kStart) / 50]);
      taken[(end - kStart) / 50] = true;
    }
}
END_TEST

/// One sender's stream, which its own port has spaced, does not wait at the port of the receiver; nor if it is heard of late.
START_TEST(a_spaced_stream_does_not_queue) {
  std::atomic<uint64_t> port{0};
  for (uint64_t i = 1; i <= 1000; ++i) ck_assert_uint_eq(occupy_by(port, kStart + i * 700, 700), kStart + i * 700);
  // Every other one is reported after its successor.
  for (uint64_t i = 1001; i <= 2000; i += 2) {
    ck_assert_uint_eq(occupy_by(port, kStart + (i + 1) * 700, 700), kStart + (i + 1) * 700);
    ck_assert_uint_eq(occupy_by(port, kStart + i * 700, 700), kStart + i * 700);
  }
}
END_TEST

/// Two senders at full rate come to one receiver: together they get what its port carries.
START_TEST(incast_gets_the_rate_of_one_port) {
  std::atomic<uint64_t> port{0};
  uint64_t last = 0;
  for (uint64_t i = 1; i <= 1000; ++i) {
    last = occupy_by(port, kStart + i * 700, 700);
    last = std::max(last, occupy_by(port, kStart + i * 700, 700));
  }
  ck_assert_uint_le(last, kStart + 2000 * 700);
  ck_assert_uint_ge(last, kStart + 2000 * 700 - kOutOfOrderNs);
}
END_TEST

uint64_t value_of(const char* text, Unit unit) {
  const auto value = parse_quantity(text, unit);
  ck_assert_msg(value.has_value(), "%s", text);
  return *value;
}

START_TEST(quantities_have_units) {
  ck_assert_uint_eq(value_of("100G", Unit::BitsPerSecond), k100G);
  ck_assert_uint_eq(value_of("2.5G", Unit::BitsPerSecond), 2'500'000'000);
  ck_assert_uint_eq(value_of("800", Unit::BitsPerSecond), 800);
  ck_assert_uint_eq(value_of("10T", Unit::BitsPerSecond), 10'000'000'000'000);
  ck_assert_uint_eq(value_of("0", Unit::Nanoseconds), 0);
  ck_assert_uint_eq(value_of("500ns", Unit::Nanoseconds), 500);
  ck_assert_uint_eq(value_of("1.5us", Unit::Nanoseconds), 1500);
  ck_assert_uint_eq(value_of("2ms", Unit::Nanoseconds), 2'000'000);
  ck_assert_uint_eq(value_of("10s", Unit::Nanoseconds), 10'000'000'000);
  ck_assert_uint_eq(value_of("0.001", Unit::Share), 1'000'000);
  ck_assert_uint_eq(value_of("0.1%", Unit::Share), 1'000'000);
  ck_assert_uint_eq(value_of("1", Unit::Share), kWhole);
  for (const char* text : {"", "G", "-1G", "1g", "1 G", "11T", "1e9", "nan", "inf", "1us", "1GG", "0x1"})
    ck_assert_msg(!parse_quantity(text, Unit::BitsPerSecond), "%s", text);
  for (const char* text : {"", "us", "5", "1G", "11s", "-1us", "1us ", "nans"})
    ck_assert_msg(!parse_quantity(text, Unit::Nanoseconds), "%s", text);
  for (const char* text : {"", "%", "1.1", "101%", "-0.1", "1us"})
    ck_assert_msg(!parse_quantity(text, Unit::Share), "%s", text);
  ck_assert_uint_eq(value_of("49151", Unit::Lid), 49151);
  for (const char* text : {"", "49152", "1.5", "-1", "1G", "x"})
    ck_assert_msg(!parse_quantity(text, Unit::Lid), "%s", text);
}
END_TEST

START_TEST(ports_may_differ) {
  PerPort rates;
  ck_assert(!rates.is_set());
  ck_assert(parse_per_port("100G,1:2=25G,0:1=0", Unit::BitsPerSecond, rates));
  ck_assert(rates.is_set());
  ck_assert_uint_eq(rates.at(port_id_of(0, 0, 1)), 0);
  ck_assert_uint_eq(rates.at(port_id_of(5, 0, 2)), k100G);
  ck_assert_uint_eq(rates.at(port_id_of(kMaxNodes - 1, 1, 2)), k100G / 4);
  for (const char* text :
       {"", ",", "1G,", "1G,,2G", "1:2", "1:2=", "1:3=1G", "1:0=1G", "4:1=1G", "01:1=1G", ":=1G", "1:2=1us"})
    ck_assert_msg(!parse_per_port(text, Unit::BitsPerSecond, rates), "%s", text);
  ck_assert_uint_eq(rates.at(port_id_of(5, 0, 2)), k100G);  // what is refused changes nothing
}
END_TEST

START_TEST(errors_say_what_would_be_right) {
  Config config;
  ck_assert(set_option("latency", "2us", config).empty());
  ck_assert(option_of("latency", config) == "2us");
  fabric::test::check_text(
      set_option("latency", "5", config),
      "latency is N(ns|us|ms|s), not \"5\" (2us is two microseconds; 2us,1:2=1ms, and a millisecond at port 2 "
      "of device 1)");
  fabric::test::check_text(
      set_option("bandwidth", "fast", config),
      "bandwidth is N[K|M|G|T], not \"fast\" (100G is 100 Gbit/s; 100G,1:2=25G, and 25 Gbit/s at port 2 of "
      "device 1)");
  ck_assert(option_of("latency", config) == "2us");
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite(
      "softhca_link",
      {time_on_the_wire, a_port_sends_one_after_another, threads_share_a_port, a_spaced_stream_does_not_queue,
       incast_gets_the_rate_of_one_port, quantities_have_units, ports_may_differ, errors_say_what_would_be_right});
}
