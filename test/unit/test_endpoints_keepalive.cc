// SPDX-License-Identifier: BSD-3-Clause
//
// Peers that are silent are asked whether they are there, and nobody else.
#include <chrono>

#include "test/unit/check_main.h"
#include "test/unit/endpoints_bench.h"

namespace fabric::test {
namespace {

/// Times that the peer has been asked over the newest queue pairs: writes of nothing.
unsigned asked(EndpointsBench& bench) {
  unsigned count = 0;
  for (std::size_t queue = 0; queue < bench.queues.count(); ++queue) {
    for (const FakeSend& one : bench.pair(queue).all_sends) {
      count += one.opcode == IBV_WR_RDMA_WRITE && one.bytes.empty() && one.rkey == 0 ? 1 : 0;
    }
  }
  ck_assert_uint_eq(count, bench.counters.keepalives);
  return count;
}
void complete_all(EndpointsBench& bench) {
  for (std::size_t queue = 0; queue < bench.queues.count(); ++queue) {
    while (!bench.pair(queue).sends.empty()) {
      bench.device.complete_send(bench.pair(queue));
    }
  }
  while (bench.endpoints.progress() > 0) {
  }
}
void time_passes(EndpointsBench& bench) {
  bench.tell(cpc::KeepAliveDue{});
}
/// Connected, and silent for a while.
void begin(EndpointsBench& bench) {
  bench.send_and_connect();
  complete_all(bench);
  time_passes(bench);  // it has been used since the last time
}

}  // namespace

START_TEST(who_is_silent_is_asked_each_time) {
  EndpointsBench bench;
  begin(bench);
  ck_assert_uint_eq(asked(bench), 0);
  for (unsigned times = 1; times <= 1000; ++times) {
    time_passes(bench);
    ck_assert_uint_eq(asked(bench), times);
    complete_all(bench);
  }
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

START_TEST(who_has_spoken_is_not_asked) {
  EndpointsBench bench;
  begin(bench);
  for (int i = 0; i < 3; ++i) {  // there are credits for more
    ck_assert_int_ge(bench.send(), 0);
    complete_all(bench);
    time_passes(bench);
  }
  ck_assert_uint_eq(asked(bench), 0);
}
END_TEST

/// Whose time limit tells if the peer is gone.
START_TEST(who_is_asked_already_is_not_asked_again) {
  EndpointsBench bench;
  begin(bench);
  for (int i = 0; i < 10; ++i) {
    time_passes(bench);
  }
  ck_assert_uint_eq(asked(bench), 1);
}
END_TEST

START_TEST(nobody_is_asked_before_there_is_a_connection) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  time_passes(bench);
  time_passes(bench);
  ck_assert_uint_eq(bench.counters.keepalives, 0);
}
END_TEST

START_TEST(who_does_not_answer_has_failed) {
  EndpointsBench bench;
  begin(bench);
  time_passes(bench);
  bench.device.fail_send(bench.pair(bench.pair(0).sends.empty() ? 1 : 0), IBV_WC_RETRY_EXC_ERR);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 1);
  ck_assert_uint_eq(bench.upper_layer_told, 1);
}
END_TEST

START_TEST(who_does_not_answer_is_connected_anew) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
  begin(bench);
  time_passes(bench);
  const std::size_t connects = bench.said<cpc::Connect>();
  bench.device.fail_send(bench.pair(bench.pair(0).sends.empty() ? 1 : 0), IBV_WC_RETRY_EXC_ERR);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Connect>(), connects + 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("endpoints: keepalive",
                   {who_is_silent_is_asked_each_time, who_has_spoken_is_not_asked,
                    who_is_asked_already_is_not_asked_again, nobody_is_asked_before_there_is_a_connection,
                    who_does_not_answer_has_failed, who_does_not_answer_is_connected_anew});
}
