// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints whose CPC exchanges CTS: a CTS that comes early, late or twice.
#include "cpc/rdmacm/rdmacm.h"
#include "test/model/inside.h"
#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace fabric::model {

FABRIC_OPEN(fabric, Endpoints, early_cts_);
FABRIC_OPEN(fabric, Endpoints, early_handshakes_);

}  // namespace fabric::model

/// A CTS that is polled when the endpoint has been closed. Without the table it was Connected again.
START_TEST(a_late_cts_revives_nothing) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  cpc::Linked linked = bench.linked(5);
  linked.may_speak_first = false;
  bench.tell(linked);
  bench.endpoints.remove(&bench.endpoint());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  bench.cts_arrives(bench.pair(), 5);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.connections_made, 0);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// The peer may have our CTS, and carry on: it would miss a link that goes without a goodbye, for which its CTS must be here.
/// 1: that never comes.
START_TEST(who_leaves_waits_for_cts) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(bench.linked(5));
  bench.device.complete_send(bench.pair());  // CTS
  bench.endpoints.remove(&bench.endpoint());
  bench.endpoints.progress();
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  if (_i == 1) {
    bench.endpoints.set_observers(nullptr, std::chrono::milliseconds(0));
  } else {
    bench.cts_arrives(bench.pair(), 5);
    bench.endpoints.progress();
    for (std::size_t queue = 0; queue < 2; ++queue) {
      ck_assert_uint_eq(bench.pair(queue).sends.size(), 1);  // goodbye: what waited is dropped
      bench.device.complete_send(bench.pair(queue));
    }
  }
  bench.endpoints.progress();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The connection ends meanwhile: nothing comes any more, and we do not wait for it. 0: the peer has connected anew; 1: it failed.
START_TEST(who_leaves_hears_of_the_end_of_the_connection) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(bench.linked(5));
  bench.endpoints.remove(&bench.endpoint());
  ck_assert(bench.endpoints.are_leaving());
  if (_i == 1) {
    bench.tell(cpc::Failed{EndpointsBench::key(), bench.link, "the peer has gone", {}, false});
    ck_assert(!bench.endpoints.are_leaving());
  }
  bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
  ck_assert(!bench.endpoints.are_leaving());
  bench.flush();
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);  // the progress thread has closed it
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// Of a connection that the main thread is never told of. Most attempts that come to nothing leave no CTS; some do.
START_TEST(an_early_cts_goes_with_its_queue_pairs) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  for (std::uint32_t i = 1; i <= 100; ++i) {
    FakeQueuePair unknown;
    unknown.verbs.qp_num = i % 7 + 1;  // numbers are used again
    bench.cts_arrives(unknown, i);
    bench.handshake_arrives(i);
    bench.endpoints.progress();
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_cts_{}).size(), 1);
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_handshakes_{}).size(), 1);
    // What comes with the last turn of the device is not forgotten either.
    bench.cts_arrives(unknown, i);
    bench.handshake_arrives(i);
    bench.tell(cpc::QueuePairsGone{EndpointsBench::key(), 1, i, unknown.verbs.qp_num, i});
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_cts_{}).size(), 0);
    ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_early_handshakes_{}).size(), 0);
  }
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// A device gives the number of a queue pair to the next one, and the CTS of the first may be here still, or again. 0: the
/// second's is not here yet; 1: it came before we hear that the first is gone.
START_TEST(a_cts_of_queue_pairs_that_are_gone_is_none) {
  EndpointsBench bench(kSharedQueues, cpc::kRdmaCm);
  bench.start_shared_queues();
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  const cpc::Linked linked = bench.linked(2);
  bench.cts_arrives(bench.pair(), 1);
  if (_i == 1) {
    bench.cts_arrives(bench.pair(), 2);
  }
  bench.endpoints.progress();
  bench.tell(cpc::QueuePairsGone{EndpointsBench::key(), 1, 1, bench.pair().verbs.qp_num, 1});
  bench.tell(linked);
  ck_assert_uint_eq(bench.counters.connections_made, _i == 1 ? 1 : 0);
  bench.cts_arrives(bench.pair(), 1);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.connections_made, _i == 1 ? 1 : 0);
  if (_i == 0) {
    bench.cts_arrives(bench.pair(), 2);
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.counters.connections_made, 1);
  }
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

int main() {
  return run_suite("endpoints: CTS", {a_late_cts_revives_nothing,
                                      {who_leaves_waits_for_cts, 2},
                                      {who_leaves_hears_of_the_end_of_the_connection, 2},
                                      an_early_cts_goes_with_its_queue_pairs,
                                      {a_cts_of_queue_pairs_that_are_gone_is_none, 2}});
}
