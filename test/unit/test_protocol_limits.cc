// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/protocol_limits.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

constexpr std::uint64_t kGib = 1U << 30;

/// `each`: of a registration, microseconds.
PortFacts adapter(Transport link, std::uint32_t mbit, double each) {
  PortFacts port;
  port.link = link;
  port.mtu = 4096;
  port.mbit_per_second = mbit;
  port.max_inline = 256;
  port.wanted_inline = 256;
  port.max_message = kGib;
  port.largest_queue = 65536;
  port.packet_header = 8;
  port.registration = {.each = each, .per_mib = 40, .copy_per_mib = 100, .is_measured = true};
  return port;
}

struct Row {
  const char* device;
  PortFacts port;
  std::uint64_t inlined, eager, max_send, in_place, pipeline_fragment;
};

PortFacts soft(Transport link, std::uint32_t inlined, std::uint32_t mtu) {
  PortFacts port = adapter(link, 10000, 3);
  port.in_software = true;
  port.max_inline = inlined;
  port.mtu = mtu;
  return port;
}

PortFacts soft_iwarp() {
  PortFacts port = soft(Transport::kIwarp, 80, 1024);
  port.is_soft_iwarp = true;
  return port;
}

PortFacts with_queue(std::uint64_t largest) {
  PortFacts port = adapter(Transport::kInfiniBand, 100000, 5);
  port.largest_queue = largest;
  return port;
}

PortFacts unmeasured() {
  PortFacts port = adapter(Transport::kInfiniBand, 100000, 1000);
  port.registration.is_measured = false;
  return port;
}

const Row kDevices[] = {
    {"InfiniBand, 100 Gbit/s", adapter(Transport::kInfiniBand, 100000, 5), 256, 12288, 65528, 16384, 1 << 20},
    {"InfiniBand, 400 Gbit/s", adapter(Transport::kInfiniBand, 400000, 20), 256, 12288, 65528, 16384, 4 << 20},
    {"RoCE, 25 Gbit/s", adapter(Transport::kRoce, 25000, 30), 256, 12288, 65528, 16384, 1 << 20},
    {"iWARP, 40 Gbit/s: whole packets are TCP's", adapter(Transport::kIwarp, 40000, 20), 256, 12288, 65536, 16384,
     1 << 20},
    {"a virtual function whose host registers", adapter(Transport::kRoce, 25000, 200), 256, 49152, 65528, 65536,
     4 << 20},
    {"soft RoCE", soft(Transport::kRoce, 256, 1024), 256, 12288, 65528, 16384, 1 << 20},
    {"soft iWARP", soft_iwarp(), 80, 14336, 65536, 16384, 1 << 20},
    {"softhca as iWARP", soft(Transport::kIwarp, 208, 4096), 208, 12288, 65536, 16384, 1 << 20},
    {"no inline", soft(Transport::kRoce, 0, 4096), 0, 12288, 65528, 16384, 1 << 20},
    {"small queues", with_queue(4096), 256, 4096, 4096, 16384, 1 << 20},
    {"queues of 12 KiB: what is sent at once fits a piece", with_queue(12288), 256, 12288, 12288, 16384, 1 << 20},
    {"queues of 6000 bytes: a packet that is half full is not dropped", with_queue(6000), 256, 6000, 6000, 16384,
     1 << 20},
    {"queues of 1 MiB", with_queue(1 << 20), 256, 12288, 65528, 16384, 1 << 20},
    {"costs that are only assumed change nothing", unmeasured(), 256, 12288, 65528, 16384, 1 << 20},
};

START_TEST(devices_get_what_fits_them) {
  const Row& row = kDevices[_i];
  const ProtocolLimits chosen = choose_limits(row.port, {});
  const auto is = [&](Limit limit, std::uint64_t value) {
    ck_assert_msg(chosen[limit].value == value, "%s: %s is %s, should be %s", row.device, parameter_of(limit),
                  std::to_string(chosen[limit].value).c_str(), std::to_string(value).c_str());
  };
  is(Limit::kInline, row.inlined);
  is(Limit::kEager, row.eager);
  is(Limit::kRndvEager, std::min<std::uint64_t>(row.eager, 12288));
  is(Limit::kMaxSend, row.max_send);
  is(Limit::kInPlace, row.in_place);
  is(Limit::kGet, kGib);
  is(Limit::kPut, kGib);
  is(Limit::kPipelineSend, 0);
  is(Limit::kPipelineFragment, row.pipeline_fragment);
  is(Limit::kLeastPipeline, row.eager);
}
END_TEST

/// Whatever is measured, no message is longer than the queues and the device take.
START_TEST(no_fact_breaks_a_bound) {
  for (const std::uint64_t largest :
       {128ULL, 129ULL, 2048ULL, 4088ULL, 4096ULL, 12288ULL, 12289ULL, 65535ULL, 65536ULL, 1ULL << 30}) {
    for (const double each : {0.0, 1.0, 100.0, 1e4, 1e9}) {
      for (const std::uint32_t mtu : {0U, 256U, 1024U, 4096U}) {
        for (const std::uint32_t mbit : {0U, 1000U, 1200000U}) {
          PortFacts port = adapter(Transport::kRoce, mbit, each);
          port.largest_queue = largest;
          port.mtu = mtu;
          const ProtocolLimits chosen = choose_limits(port, {});
          ck_assert_uint_le(chosen[Limit::kEager].value, largest);
          ck_assert_uint_le(chosen[Limit::kRndvEager].value, chosen[Limit::kEager].value);
          ck_assert_uint_le(chosen[Limit::kMaxSend].value, largest);
          ck_assert_uint_ge(chosen[Limit::kMaxSend].value, chosen[Limit::kEager].value);
          ck_assert_uint_ge(chosen[Limit::kLeastPipeline].value, chosen[Limit::kEager].value);
          ck_assert_uint_ge(chosen[Limit::kPipelineFragment].value, 1 << 20);
          ck_assert_uint_le(chosen[Limit::kPipelineFragment].value, 4 << 20);
          ck_assert_uint_ge(chosen[Limit::kInPlace].value, 16384);
          ck_assert_uint_le(chosen[Limit::kInPlace].value, 65536);
        }
      }
    }
  }
}
END_TEST

START_TEST(every_choice_has_a_reason_of_one_line) {
  const ProtocolLimits chosen = choose_limits(kDevices[_i].port, {});
  for (std::size_t i = 0; i < kLimits; ++i) {
    const std::string& reason = chosen[static_cast<Limit>(i)].reason;
    ck_assert_msg(!reason.empty() && reason.find('\n') == std::string::npos, "%s", reason.c_str());
  }
}
END_TEST

START_TEST(reasons_have_what_was_measured) {
  const ProtocolLimits usual = choose_limits(adapter(Transport::kRoce, 25000, 20), {});
  test::check_text(
      usual[Limit::kEager].reason,
      "longer ones are read, which saves two copies: registering 12288 bytes takes 20 us here, copying them "
      "from memory 1.2 us");
  test::check_text_has(usual[Limit::kMaxSend].reason, "in 16 whole packets of 4096");
  const ProtocolLimits dear = choose_limits(adapter(Transport::kRoce, 25000, 200), {});
  test::check_text_has(dear[Limit::kEager].reason, "more than usual");
  test::check_text_has(dear[Limit::kEager].reason, "takes 200 us here");
  test::check_text_has(choose_limits(unmeasured(), {})[Limit::kEager].reason, "(an assumption)");
  PortFacts narrow = adapter(Transport::kRoce, 25000, 200);
  narrow.largest_queue = 20000;
  test::check_text_has(choose_limits(narrow, {})[Limit::kEager].reason, "no receive queue takes twice as much");
}
END_TEST

START_TEST(the_users_values_win) {
  LimitWishes wishes;
  for (std::size_t i = 0; i < kLimits; ++i) {
    wishes[static_cast<Limit>(i)] = 20000 + i;
  }
  wishes[Limit::kInline] = 64;
  wishes[Limit::kLeastPipeline] = 1 << 20;
  PortFacts port = kDevices[_i].port;
  port.max_inline = 64;  // what it was asked for
  const ProtocolLimits chosen = choose_limits(port, wishes);
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    ck_assert_uint_eq(chosen[limit].value, *wishes[limit]);
    test::check_text(chosen[limit].reason, std::string("set by btl_fabric_") + parameter_of(limit));
  }
}
END_TEST

START_TEST(one_value_leaves_the_others_to_us) {
  LimitWishes wishes;
  wishes[Limit::kEager] = 4096;
  const ProtocolLimits chosen = choose_limits(adapter(Transport::kRoce, 25000, 20), wishes);
  ck_assert_uint_eq(chosen[Limit::kRndvEager].value, 4096);  // Open MPI takes no more anyway
  ck_assert_uint_eq(chosen[Limit::kLeastPipeline].value, 4096);
  ck_assert_uint_eq(chosen[Limit::kMaxSend].value, 65528);
}
END_TEST

START_TEST(the_device_has_the_last_word) {
  PortFacts port = adapter(Transport::kRoce, 25000, 20);
  port.max_message = 100000;
  port.max_inline = 64;
  LimitWishes wishes;
  wishes[Limit::kGet] = UINT64_MAX;
  wishes[Limit::kPut] = 0;
  wishes[Limit::kInline] = 128;
  wishes[Limit::kLeastPipeline] = 1;
  wishes[Limit::kInPlace] = 0;
  const ProtocolLimits chosen = choose_limits(port, wishes);
  ck_assert_uint_eq(chosen[Limit::kGet].value, 100000);
  test::check_text(chosen[Limit::kGet].reason,
                   "set by btl_fabric_get_limit, but the port's longest message is of 100000 bytes");
  ck_assert_uint_eq(chosen[Limit::kPut].value, 100000);
  test::check_text_has(chosen[Limit::kPut].reason, "set by btl_fabric_put_limit to 0, which is no limit, but");
  ck_assert_uint_eq(chosen[Limit::kInline].value, 64);
  test::check_text_has(chosen[Limit::kInline].reason, "but the device takes no more");
  ck_assert_uint_eq(chosen[Limit::kLeastPipeline].value, 12288);
  test::check_text(chosen[Limit::kLeastPipeline].reason,
                   "set by btl_fabric_min_rdma_pipeline_size, but shorter ones are sent at once");
  ck_assert_uint_eq(chosen[Limit::kInPlace].value, 0);
}
END_TEST

START_TEST(what_no_queue_takes_is_refused) {
  LimitWishes wishes;
  ck_assert(check_limits(wishes, 128));
  wishes[Limit::kEager] = 65536;
  ck_assert(check_limits(wishes, 65536));
  test::check_error_has(
      check_limits(wishes, 65535),
      "btl_fabric_eager_limit is 65536, but the largest queue of btl_fabric_receive_queues takes 65535 bytes");
  wishes[Limit::kEager].reset();
  wishes[Limit::kMaxSend] = 70000;
  test::check_error_has(check_limits(wishes, 65536), "btl_fabric_max_send_size is 70000");
  wishes[Limit::kMaxSend] = 63;
  test::check_error_has(check_limits(wishes, 65536), "btl_fabric_max_send_size is 63, but");
  wishes[Limit::kMaxSend] = 64;
  ck_assert(check_limits(wishes, 65536));
  wishes[Limit::kMaxSend].reset();
  wishes[Limit::kGet] = 70000;
  ck_assert(check_limits(wishes, 65536));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  constexpr int kRows = sizeof kDevices / sizeof kDevices[0];
  return test::run_suite("protocol_limits", {{devices_get_what_fits_them, kRows},
                                             no_fact_breaks_a_bound,
                                             {every_choice_has_a_reason_of_one_line, kRows},
                                             reasons_have_what_was_measured,
                                             {the_users_values_win, kRows},
                                             one_value_leaves_the_others_to_us,
                                             the_device_has_the_last_word,
                                             what_no_queue_takes_is_refused});
}
