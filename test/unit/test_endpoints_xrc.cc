// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints with X queues: senders that connections share, and peers that only send.
#include "btl_fabric/path/shared_send_queue.h"
#include "cpc/oob/xoob.h"
#include "test/model/inside.h"
#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace fabric::model {

FABRIC_OPEN(fabric, Endpoints, closing_);
FABRIC_OPEN(fabric, Endpoints, endpoints_);
FABRIC_OPEN(fabric, PacketPath, senders_);

}  // namespace fabric::model

/// Peers of a node come and go. 0: the queue pair to the node goes with each; 1: it stays for somebody else; 2: it goes
/// while a callback runs, and progress is called within.
START_TEST(a_shared_send_queue_goes_with_its_queue_pair) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  const auto& senders = inside(bench.endpoints.path(), model::PacketPath_senders_{});
  FakeQueuePair& pair = bench.device.make_queue_pair();
  const auto turn = [&] {
    bench.device.complete_send(pair);
    bench.endpoints.progress();
  };
  const cpc::ConnectionKey key = EndpointsBench::key(cpc::Direction::kOutgoing);
  for (cpc::LinkNumber link = 1; link <= 20; ++link) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    bench.tell(cpc::PostReceives{key, link, {}});
    const std::uint64_t sender = _i == 1 ? 1 : link;
    bench.tell(cpc::Connected{key, link, {{7, 7}}, {&pair.verbs, sender, {1, 2}, link}});
    ck_assert_uint_eq(senders.size(), 1);
    ck_assert_uint_eq(senders.at(sender)->shares().size(), 1);
    turn();
    const auto go = [&] {
      bench.endpoints.remove(&bench.endpoint());
      turn();
      turn();
      bench.tell(cpc::Flushing{key, link});
      bench.endpoints.progress();
      bench.tell(cpc::QueuePairsGone{key, link, 0, 0, 0, _i == 1 ? 0 : sender});
      bench.endpoints.progress();
      ck_assert_uint_eq(senders.size(), _i == 0 ? 0 : 1);
    };
    if (_i == 2) {
      bench.on_sent = [&] {
        bench.on_sent = nullptr;
        go();
      };
      turn();
      bench.endpoints.progress();
      ck_assert_uint_eq(senders.size(), 0);
    } else {
      turn();
      go();
    }
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), link);
    ck_assert_uint_eq(bench.reports, 0);
  }
}
END_TEST

/// X queues: the peer that sends does not know that Open MPI has taken it away here, and nothing that it sends is lost. 0, 2: we
/// have no connection to it; 1, 3: we were about to connect. Only its goodbye is the end, whether Open MPI has taken the
/// endpoint back in between (2, 3) or not.
START_TEST(who_only_receives_goes_on_to) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  FakeQueuePair& target = bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
  const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
  Endpoint* const endpoint = &bench.endpoint();
  bench.tell(cpc::PostReceives{incoming, 1, {}, target.verbs.qp_num, 9});
  bench.tell(cpc::Connected{incoming, 1, {}, {}});
  const bool connects = _i % 2 == 1;
  if (connects) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  }
  bench.endpoints.remove(endpoint);
  ck_assert_uint_eq(bench.said<cpc::Close>(), connects ? 1 : 0);
  std::vector<std::byte> message(PacketHeader::kSize + 4);
  PacketHeader{PacketKind::kMessage, kTag, {}}.write(message.data());
  bench.device.receive(*bench.shared[0], target, message);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.messages_received, 1);
  if (connects) {
    bench.tell(cpc::Flushing{outgoing, 1});
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  }
  if (_i >= 2) {
    ck_assert_ptr_eq(&bench.endpoint(), endpoint);
    bench.device.receive(*bench.shared[0], target, message);
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.counters.messages_received, 2);
  }
  PacketHeader{PacketKind::kGoodbye, 0, {}}.write(message.data());
  store_be(message.data() + PacketHeader::kSize, std::uint32_t{9});
  bench.device.receive(*bench.shared[0], target, message);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Close>(), connects ? 2 : 1);
  bench.tell(cpc::Flushing{incoming, 1});
  if (_i >= 2) {
    bench.endpoints.remove(endpoint);
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), connects ? 2 : 1);
  ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_endpoints_{}).size(), 0);
  ck_assert_uint_eq(inside(bench.endpoints, model::Endpoints_closing_{}).size(), 0);
  ck_assert_uint_eq(bench.sends_ended.size(), 0);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

int main() {
  return run_suite("endpoints: X queues",
                   {{a_shared_send_queue_goes_with_its_queue_pair, 3}, {who_only_receives_goes_on_to, 4}});
}
