// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints whose connection breaks: what waits meanwhile, and when it goes on.
#include <chrono>
#include <thread>
#include <vector>

#include "btl_fabric/peer/endpoints_description.h"
#include "test/unit/broken_endpoints.h"
#include "test/unit/check_main.h"

namespace fabric::test {

/// btl_flush asks for what is outstanding: a write that is to be repeated is, wherever it is just now.
START_TEST(a_write_is_outstanding_until_it_has_been_repeated) {
  EndpointsBench bench;
  begin(bench);
  bench.endpoints.queue_pair_failed(bench.pair().verbs.qp_num, IBV_EVENT_QP_FATAL);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
  drain(bench);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
  connect_again(bench);
  ck_assert_uint_eq(posted(bench, PacketKind::kCounts), 1);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
  ck_assert_uint_eq(bench.requests_ended, 0);
  counts_arrive(bench, 1, 0);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 1);
  while (!bench.pair(1).sends.empty()) {
    bench.device.complete_send(bench.pair(1));
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 0);
  ck_assert_uint_eq(bench.requests_ended, 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// So is an atomic that has gone as a message, until the peer answers.
START_TEST(an_atomic_is_outstanding_between_two_links) {
  EndpointsBench bench;
  begin(bench);
  RdmaRequest* const request = bench.rdma.requests.get(Transport::kInfiniBand);
  request->as_message = true;
  ck_assert_int_eq(bench.endpoint().submit(request), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 2);
  lose(bench);
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 2);
  bench.tell(cpc::Failed{bench.key(), ++bench.link, "no way to the peer", "", true, false});
  bench.tell(cpc::Flushing{bench.key(), bench.link});
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.endpoint().rdma_outstanding(), 2);
}
END_TEST

START_TEST(a_message_goes_again_if_the_peer_does_not_have_it) {
  for (const bool has_it : {false, true}) {
    EndpointsBench bench;
    begin(bench);
    lose(bench);
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);  // it waits
    connect_again(bench);
    ck_assert_uint_eq(posted(bench, PacketKind::kMessage), 0);
    counts_arrive(bench, has_it ? 1 : 0, 0);
    ck_assert_uint_eq(posted(bench, PacketKind::kMessage), has_it ? 1 : 2);
    ck_assert_uint_eq(bench.sends_ended.size(), has_it ? 1 : 0);
    ck_assert_uint_eq(bench.reports, 0);
    ck_assert_uint_eq(bench.counters.connections_healed, 1);
  }
}
END_TEST

/// The peer has nothing to send again, so it sends an atomic operation first of all.
START_TEST(an_atomic_that_comes_while_the_rest_is_sent_again_is_answered) {
  EndpointsBench bench;
  begin(bench);
  lose(bench);
  connect_again(bench);
  std::vector<std::byte> packet(PacketHeader::kSize + AtomicMessage::kSize);
  PacketHeader{PacketKind::kAtomic, 0, {}}.write(packet.data());
  AtomicMessage().write(packet.data() + PacketHeader::kSize);
  bench.device.receive(bench.pair(), packet);
  bench.endpoints.progress();
  ck_assert_uint_eq(posted(bench, PacketKind::kAtomicReply), 0);
  counts_arrive(bench, 1, 0);
  bench.endpoints.progress();
  ck_assert_uint_eq(posted(bench, PacketKind::kAtomicReply), 1);
}
END_TEST

/// The peer says that it has more than was sent, or less than is known to have arrived.
START_TEST(counts_that_cannot_be_are_an_error) {
  EndpointsBench bench;
  begin(bench);
  lose(bench);
  connect_again(bench);
  counts_arrive(bench, 2, 0);
  expect_given_up(bench);
}
END_TEST

/// Who has lost nothing answers with what it has, and does not wait.
START_TEST(who_is_asked_answers) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
  bench.send_and_connect();
  bench.message_arrives();
  bench.endpoints.progress();
  counts_arrive(bench, 0, 0);
  ck_assert_uint_eq(posted(bench, PacketKind::kCounts), 1);
  counts_arrive(bench, 0, 0);
  ck_assert_uint_eq(posted(bench, PacketKind::kCounts), 1);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(posted(bench, PacketKind::kMessage), 2);
}
END_TEST

/// Nobody waits for what is flushed, and no event comes before it: still something may have been lost with the queue pair.
START_TEST(a_queue_pair_that_is_flushed_has_broken) {
  EndpointsBench bench;
  begin(bench);
  const std::size_t before = bench.said<cpc::Connect>();
  bench.device.fail_receive(bench.pair(), IBV_WC_WR_FLUSH_ERR);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Connect>(), before + 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// But of one that is being set up the progress thread says why it cannot be, which may be final.
START_TEST(a_set_up_that_is_flushed_waits_for_its_reason) {
  EndpointsBench bench;
  begin(bench);
  lose(bench);
  ++bench.link;
  bench.post_receives();
  const std::size_t before = bench.said<cpc::Connect>();
  bench.device.fail_receive(bench.pair(), IBV_WC_WR_FLUSH_ERR);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Connect>(), before);
  bench.tell(cpc::Failed{bench.key(), bench.link, "it has ended", "", true, true});
  expect_given_up(bench);
}
END_TEST

/// The peer's main thread computes: its progress thread has brought the connection up.
START_TEST(a_peer_that_computes_is_waited_for) {
  EndpointsBench bench;
  begin(bench, std::chrono::milliseconds(20));
  lose(bench);
  connect_again(bench);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  counts_arrive(bench, 1, 0);
  while (!bench.pair(1).sends.empty()) {
    bench.device.complete_send(bench.pair(1));
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.requests_ended, 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// Receives that were posted after the queue pair had been moved to the error state are not flushed by every device.
START_TEST(what_was_posted_late_is_flushed_again) {
  EndpointsBench bench;
  begin(bench);
  FakeQueuePair& pair = bench.pair();
  bench.endpoints.queue_pair_failed(pair.verbs.qp_num, IBV_EVENT_QP_FATAL);
  bench.tell(cpc::Flushing{bench.key(), bench.link});
  while (!pair.sends.empty()) {
    bench.device.fail_send(pair, IBV_WC_WR_FLUSH_ERR);
  }
  bench.device.flush(bench.pair(1));
  while (bench.endpoints.progress() > 0) {
  }
  ck_assert_uint_eq(pair.modified, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  bench.endpoints.progress();
  ck_assert_uint_eq(pair.modified, 1);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 0);
  bench.device.flush(pair);
  while (bench.endpoints.progress() > 0) {
  }
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
}
END_TEST

/// Open MPI may take the peer away and want it again. The peer, whose endpoint has stayed, goes on to count.
START_TEST(who_is_taken_away_and_wanted_again_goes_on_to_count) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  take_away(bench);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  connect_again(bench);
  ck_assert_uint_eq(posted(bench, PacketKind::kMessage), 0);
  ck_assert_uint_eq(posted(bench, PacketKind::kCounts), 1);
  counts_arrive(bench, 1, 0);
  ck_assert_uint_eq(posted(bench, PacketKind::kMessage), 1);
  ck_assert_uint_eq(bench.counters.connections_healed, 0);  // nothing had broken
  lose_again(bench);
  connect_again(bench);
  counts_arrive(bench, 2, 0);
  ck_assert_uint_eq(posted(bench, PacketKind::kMessage), 0);  // it has arrived
  ck_assert_uint_eq(bench.sends_ended.size(), 2);
  ck_assert_uint_eq(bench.counters.connections_healed, 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// btl_fabric_heal_timeout may be 0 in this process and not in the peer.
START_TEST(who_does_not_count_says_so) {
  EndpointsBench bench;
  bench.send_and_connect();
  counts_arrive(bench, 1, 0);
  ck_assert_uint_eq(bench.reports, 1);
  ck_assert_uint_eq(bench.upper_layer_told, 1);
  drain(bench);
  take_away(bench);
}
END_TEST

/// btl_fabric_dump_signal.
START_TEST(what_waits_is_described) {
  EndpointsBench bench;
  begin(bench);
  std::string text;
  EndpointsDescription(bench.endpoints).append_to(text);
  ck_assert_msg(text.find("rank 7, job 1: Connected\n") != std::string::npos, "%s", text.c_str());
  ck_assert_msg(text.find("1 message is under way; ") != std::string::npos, "%s", text.c_str());
  ck_assert_msg(text.find("RDMA: 1 operation, 1 under way, 0 atomic") != std::string::npos, "%s", text.c_str());
  lose(bench);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  text.clear();
  EndpointsDescription(bench.endpoints).append_to(text);
  ck_assert_msg(text.find("Connecting: waits for the connection\n") != std::string::npos, "%s", text.c_str());
  ck_assert_msg(text.find(" ago; 1 attempt to connect since") != std::string::npos, "%s", text.c_str());
  ck_assert_msg(text.find("1 message waits for the connection, and 0 reads and writes") != std::string::npos, "%s",
                text.c_str());
  ck_assert_msg(text.find("0 peers: nothing waits") != std::string::npos, "%s", text.c_str());
}
END_TEST

/// If the next connection breaks before anything is to be sent over it, nobody misses it.
START_TEST(counts_alone_are_missed_by_nobody) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  take_away(bench);
  (void)bench.endpoint();
  connect_again(bench);  // the peer wants it
  const std::size_t connects = bench.said<cpc::Connect>();
  bench.tell(cpc::PeerLeft{bench.key(), bench.link, "it has ended"});
  drain(bench);
  ck_assert_uint_eq(bench.said<cpc::Connect>(), connects);
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite(
      "endpoints: healing",
      {a_write_is_outstanding_until_it_has_been_repeated, an_atomic_is_outstanding_between_two_links,
       a_message_goes_again_if_the_peer_does_not_have_it, an_atomic_that_comes_while_the_rest_is_sent_again_is_answered,
       counts_that_cannot_be_are_an_error, who_is_asked_answers, what_was_posted_late_is_flushed_again,
       a_queue_pair_that_is_flushed_has_broken, a_set_up_that_is_flushed_waits_for_its_reason,
       a_peer_that_computes_is_waited_for, who_is_taken_away_and_wanted_again_goes_on_to_count,
       counts_alone_are_missed_by_nobody, who_does_not_count_says_so, what_waits_is_described});
}
