// SPDX-License-Identifier: BSD-3-Clause
//
// Which peers are shown to contrib/fabric_top, and what of them.
#include <array>
#include <string>

#include "btl_fabric/peer/endpoints_top.h"
#include "test/unit/check_main.h"
#include "test/unit/endpoints_bench.h"

namespace fabric::test {
namespace {

using Rows = std::array<top::Peer, 3>;

std::uint32_t look(EndpointsBench& bench, Rows& rows) {
  EndpointsTop top;
  top.take(bench.endpoints);
  return top.write(rows);
}

}  // namespace

START_TEST(nothing_is_counted_unless_somebody_looks) {
  EndpointsBench bench;
  bench.send_and_connect();
  Rows rows;
  ck_assert_uint_eq(look(bench, rows), 0);
}
END_TEST

START_TEST(a_peer_is_shown_with_what_comes_and_waits) {
  EndpointsBench bench;
  EndpointsTop::watch(bench.endpoints);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  Rows rows;
  ck_assert_uint_eq(look(bench, rows), 1);
  ck_assert_uint_eq(rows[0].rank, 7);
  ck_assert_uint_eq(rows[0].job, 1);
  ck_assert_uint_eq(rows[0].wait_for_connection, 1);
  check_text(rows[0].state.get(), "Connecting");
  check_text(rows[0].method.get(), "oob");

  bench.post_receives();
  bench.connected();
  bench.message_arrives();
  bench.message_arrives(1);
  bench.endpoints.progress();
  ck_assert_uint_eq(look(bench, rows), 1);
  check_text(rows[0].state.get(), "Connected");
  ck_assert_uint_eq(rows[0].now.packets_received, 2);
  ck_assert_uint_eq(rows[0].before.packets_received, 0);
  ck_assert_uint_eq(rows[0].wait_for_connection, 0);
  ck_assert_uint_eq(rows[0].under_way, 1);
  ck_assert_uint_lt(rows[0].credits, 8);
  ck_assert_uint_eq(rows[0].credits_queue, 256);

  // Without credits messages wait.
  for (unsigned credits = rows[0].credits; credits > 0; --credits) {
    ck_assert_int_ge(bench.send(), 0);
  }
  bench.messages_arrive();  // there is a buffer again
  ck_assert_int_ge(bench.send(), 0);
  ck_assert_uint_eq(look(bench, rows), 1);
  ck_assert_uint_eq(rows[0].credits, 0);
  ck_assert_uint_eq(rows[0].wait_for_credit, 1);
  ck_assert_uint_eq(rows[0].wait_for_room, 0);
  ck_assert_uint_eq(rows[0].before.packets_received, 2);  // nothing has come since
}
END_TEST

/// Its counts go on, or those of the next link begin: neither is a peer that has sent four thousand million packets.
START_TEST(packets_are_counted_over_a_link_that_is_made_anew) {
  EndpointsBench bench("P,256,8,4,2,2:P,4096,8,4,2,2", cpc::kOob, true);
  if (_i == 1) {
    bench.endpoints.set_observers(nullptr, {}, std::chrono::seconds(10));
  }
  EndpointsTop::watch(bench.endpoints);
  bench.send_and_connect();
  bench.message_arrives();
  bench.endpoints.progress();
  Rows rows;
  ck_assert_uint_eq(look(bench, rows), 1);
  ck_assert_uint_eq(rows[0].now.packets_received, 1);
  take_away(bench);
  bench.link = 2;
  (void)bench.send();
  ck_assert_uint_eq(look(bench, rows), 1);
  ck_assert_uint_le(rows[0].now.packets_received, 1);
}
END_TEST

START_TEST(there_is_place_for_those_that_wait_and_those_that_send) {
  EndpointsBench bench;
  EndpointsTop::watch(bench.endpoints);
  std::array<opal_proc_t, 10> procs{};
  std::string why_not;
  for (std::size_t i = 0; i < procs.size(); ++i) {
    procs[i].proc_name = {1, static_cast<std::uint32_t>(100 + i)};
    ck_assert_ptr_nonnull(bench.endpoints.endpoint_for(&procs[i], bench.peer, why_not));
  }
  bench.send_and_connect();  // to rank 7
  ck_assert_int_eq(bench.send(bench.endpoint_of_another()), OPAL_SUCCESS);
  bench.message_arrives();
  bench.endpoints.progress();
  EndpointsTop top;
  top.take(bench.endpoints);
  ck_assert_uint_eq(top.count(), 12);
  Rows rows;
  ck_assert_uint_eq(top.write(rows), 3);
  ck_assert_uint_eq(rows[0].rank, 8);  // something waits
  ck_assert_uint_eq(rows[1].rank, 7);  // something has come
  ck_assert_uint_ge(rows[2].rank, 100);

  // Of a second port.
  EndpointsTop both;
  both.take(bench.endpoints);
  both.take(bench.endpoints);
  ck_assert_uint_eq(both.count(), 24);
  ck_assert_uint_eq(both.write(rows), 3);
  ck_assert_uint_eq(rows[0].port + rows[1].port, 1);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("endpoints_top", {nothing_is_counted_unless_somebody_looks,
                                     a_peer_is_shown_with_what_comes_and_waits,
                                     {packets_are_counted_over_a_link_that_is_made_anew, 2},
                                     there_is_place_for_those_that_wait_and_those_that_send});
}
