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
  for (FakeSharedQueue* queue : bench.shared) {
    bench.device.receive(*queue, target, message);
  }
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

/// The peer sends to us, and a connection of ours that nobody waits for cannot be made: it begins with that of another port. What
/// the peer sends goes on to arrive. 0: the connection fails; 1: the progress thread gives it up to begin anew.
START_TEST(a_connection_that_nobody_misses_fails) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  FakeQueuePair& target = bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
  const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
  Endpoint& endpoint = bench.endpoint();
  const auto messages = [&] {
    std::vector<std::byte> message(PacketHeader::kSize + 4);
    PacketHeader{PacketKind::kMessage, kTag, {}}.write(message.data());
    bench.device.receive(*bench.shared[0], target, message);
    bench.endpoints.progress();
    return bench.counters.messages_received;
  };
  bench.tell(cpc::PostReceives{incoming, 1, {}, target.verbs.qp_num, 9});
  bench.tell(cpc::Connected{incoming, 1, {}, {}});
  for (cpc::LinkNumber link = 1; link <= 2; ++link) {
    bench.endpoints.connect(outgoing.peer);
    ck_assert_uint_eq(bench.said<cpc::Connect>(), link);
    if (_i == 0) {
      bench.tell(cpc::Failed{outgoing, link, "refused", "", true});
    }
    ck_assert_uint_eq(messages(), link * 2 - 1);
    bench.tell(cpc::Flushing{outgoing, link});
    ck_assert_uint_eq(messages(), link * 2);
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), link);
  }
  FakeQueuePair& sender = bench.device.make_queue_pair();
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(cpc::PostReceives{outgoing, 3, {}});
  bench.tell(cpc::Connected{outgoing, 3, {{7, 7}}, {&sender.verbs, 1, {1, 2}, 3}});
  ck_assert(endpoint.carrier() != nullptr);
  bench.device.complete_send(sender);
  ck_assert_uint_eq(messages(), 5);
  ck_assert_uint_eq(bench.sends_ended.size(), 1);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The peer's message says that it is connected, should its CONFIRM be lost: of the connection that the peer sends by, whether
/// (1) or not (0) we have one to it.
START_TEST(a_message_stands_for_the_confirm) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  FakeQueuePair& target = bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
  if (_i == 1) {
    FakeQueuePair& sender = bench.device.make_queue_pair();
    const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
    bench.tell(cpc::PostReceives{outgoing, 1, {}});
    bench.tell(cpc::Connected{outgoing, 1, {{7, 7}}, {&sender.verbs, 1, {1, 2}, 1}});
    ck_assert(bench.endpoint().carrier() != nullptr);
  }
  (void)bench.endpoint();
  bench.tell(cpc::PostReceives{incoming, 1, {}, target.verbs.qp_num, 9});
  ck_assert_uint_eq(bench.said<cpc::PeerSpoke>(), 0);
  std::vector<std::byte> message(PacketHeader::kSize + 4);
  PacketHeader{PacketKind::kMessage, kTag, {}}.write(message.data());
  for (int i = 0; i < 3; ++i) {
    bench.device.receive(*bench.shared[0], target, message);
    bench.endpoints.progress();
  }
  ck_assert_uint_eq(bench.counters.messages_received, 3);
  ck_assert_uint_eq(bench.said<cpc::PeerSpoke>(), 1);
  const auto* spoke = std::get_if<cpc::PeerSpoke>(&bench.commands.back());
  ck_assert(spoke != nullptr && spoke->key == incoming && spoke->link == 1);
}
END_TEST

namespace {

/// Two processes of a node, to which messages go through one queue pair; the first also sends to us.
struct TwoOfANode {
  TwoOfANode() {
    (void)bench.endpoint();
    bench.tell(cpc::PostReceives{incoming, 1, {}, target.verbs.qp_num, 9});
    bench.tell(cpc::Connected{incoming, 1, {}, {}});
    connect(bench.endpoint(), outgoing, 1, sender, 1);
    connect(bench.endpoint_of_another(), outgoing_to_another, 1, sender, 1);
  }
  /// Sends a message, for which the progress thread connects.
  void connect(Endpoint& endpoint, const cpc::ConnectionKey& key, cpc::LinkNumber link, FakeQueuePair& by,
               std::uint64_t number) {
    ck_assert_int_eq(bench.send(endpoint), OPAL_SUCCESS);
    bench.tell(cpc::PostReceives{key, link, {}});
    bench.tell(cpc::Connected{key, link, {{7, 7}}, {&by.verbs, number, {1, 2}, link}});
    bench.device.complete_send(by);
    bench.endpoints.progress();
    ck_assert(endpoint.carrier() != nullptr);
  }
  /// Of the peer that sends to us; how many have come.
  std::uint64_t receive() {
    std::vector<std::byte> message(PacketHeader::kSize + 4);
    PacketHeader{PacketKind::kMessage, kTag, {}}.write(message.data());
    bench.device.receive(*bench.shared[0], target, message);
    bench.endpoints.progress();
    return bench.counters.messages_received;
  }

  EndpointsBench bench{kXQueues, cpc::kXoob};
  FakeQueuePair& sender = bench.device.make_queue_pair();
  FakeQueuePair& target = bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
  const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
  const cpc::ConnectionKey outgoing_to_another{{1, 8}, 0, 0, cpc::Direction::kOutgoing};
};

}  // namespace

/// A process of the node has gone without having heard our goodbye, which breaks the queue pair. 0: nothing is under way to the
/// other, which is connected anew when there is something to send; 1 to 3: a message, an inline message or a write is, and that
/// is an error; 4: so is an inline message that is followed by the goodbye to a third; 5: there is only the goodbye to a third,
/// and there was an inline message before both.
START_TEST(a_goodbye_that_fails_is_no_failure_of_others) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  Endpoint& stays = bench.endpoint();
  if (_i >= 4) {
    node.connect(bench.endpoint_of_another(true), {{1, 9}, 0, 0, cpc::Direction::kOutgoing}, 1, node.sender, 1);
  }
  if (_i == 5) {
    ck_assert(stays.send_immediately({nullptr, "abcd", 4, 0, kTag}));
  }
  bench.endpoints.remove(&bench.endpoint_of_another());
  if (_i == 4) {
    ck_assert(stays.send_immediately({nullptr, "abcd", 4, 0, kTag}));
  }
  if (_i >= 4) {
    bench.endpoints.remove(&bench.endpoint_of_another(true));
  }
  if (_i == 1) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  } else if (_i == 2) {
    ck_assert(stays.send_immediately({nullptr, "abcd", 4, 0, kTag}));
  } else if (_i == 3) {
    ck_assert_int_eq(bench.submit(), OPAL_SUCCESS);
  }
  if (_i == 5) {
    node.sender.sends.pop_front();  // it has arrived, which nobody is told
  }
  bench.device.fail_send(node.sender, IBV_WC_REM_INV_REQ_ERR);
  bench.device.flush(node.sender);
  bench.endpoints.progress();
  const bool is_harmless = _i == 0 || _i == 5;
  ck_assert(stays.carrier() == nullptr);
  ck_assert_uint_eq(bench.reports, is_harmless ? 0 : 1);
  ck_assert_uint_eq(bench.upper_layer_told, is_harmless ? 0 : 1);
  if (is_harmless) {
    const std::size_t peers = _i == 5 ? 3 : 2;
    ck_assert_uint_eq(node.receive(), 1);  // what it sends comes by another queue pair
    bench.tell(cpc::Flushing{node.outgoing, 1});
    node.connect(stays, node.outgoing, 2, bench.device.make_queue_pair(), 2);
    ck_assert_uint_eq(bench.said<cpc::Connect>(), peers + 1);
    ck_assert_uint_eq(node.receive(), 2);
    ck_assert(std::count(bench.sends_ended.begin(), bench.sends_ended.end(), OPAL_SUCCESS) ==
              static_cast<std::ptrdiff_t>(peers + 1));
    ck_assert_uint_eq(bench.reports, 0);
  }
}
END_TEST

/// The same while the other is being connected by that queue pair, and nothing is said of it until then. 0: a message waits, for
/// which it is connected anew; 1: none does; 2: the queue pair has not failed by a goodbye, but refuses a message, and whoever
/// joined it again would fare no better.
START_TEST(a_goodbye_fails_while_another_connects) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  FakeQueuePair& sender = bench.device.make_queue_pair();
  const cpc::ConnectionKey outgoing = EndpointsBench::key(cpc::Direction::kOutgoing);
  const cpc::ConnectionKey to_another{{1, 8}, 0, 0, cpc::Direction::kOutgoing};
  const auto tell_connected = [&](const cpc::ConnectionKey& key, cpc::LinkNumber link, FakeQueuePair& by) {
    bench.tell(cpc::Connected{key, link, {{7, 7}}, {&by.verbs, by.verbs.qp_num, {1, 2}, link}});
  };
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(cpc::PostReceives{outgoing, 1, {}});
  tell_connected(outgoing, 1, sender);
  bench.device.complete_send(sender);
  bench.endpoints.progress();
  Endpoint& another = bench.endpoint_of_another();
  if (_i == 1) {
    bench.endpoints.connect(to_another.peer);
  } else {
    ck_assert_int_eq(bench.send(another), OPAL_SUCCESS);
  }
  bench.tell(cpc::PostReceives{to_another, 1, {}});
  if (_i == 2) {
    bench.device.refuse_sends(EINVAL);
    (void)bench.send();
    bench.device.refuse_sends(0);
  } else {
    bench.endpoints.remove(&bench.endpoint());
    bench.device.fail_send(sender, IBV_WC_REM_INV_REQ_ERR);
    bench.device.flush(sender);
    bench.endpoints.progress();
  }
  const unsigned before = bench.reports;
  ck_assert_uint_eq(before, _i == 2 ? 1 : 0);
  bench.commands.clear();
  tell_connected(to_another, 1, sender);
  ck_assert(another.carrier() == nullptr);
  ck_assert_uint_eq(bench.reports, _i == 2 ? 2 : 0);
  ck_assert_uint_eq(bench.upper_layer_told, _i == 2 ? 2 : 0);
  ck_assert_uint_eq(bench.said<cpc::Connect>(), _i == 0 ? 1 : 0);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  if (_i == 2) {
    return;
  }
  ck_assert(std::get<cpc::Close>(bench.commands.front()).link ==
            1);  // else the next one would join the same queue pair
  bench.tell(cpc::Flushing{to_another, 1});
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  if (_i == 1) {
    ck_assert_int_eq(bench.send(another), OPAL_SUCCESS);
  }
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 1);
  FakeQueuePair& next = bench.device.make_queue_pair();
  bench.tell(cpc::PostReceives{to_another, 2, {}});
  tell_connected(to_another, 2, next);
  ck_assert(another.carrier() != nullptr);
  bench.device.complete_send(next);
  bench.endpoints.progress();
  ck_assert_int_eq(bench.sends_ended.back(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.sends_ended.size(), 2);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The queue pair by which the peer sends fails, and the device says so: it is closed. What we send goes on.
START_TEST(the_queue_pair_of_a_peer_fails) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  const std::size_t closed = bench.said<cpc::Close>();
  bench.endpoints.queue_pair_failed(node.target.verbs.qp_num, IBV_EVENT_QP_REQ_ERR);
  ck_assert_uint_eq(bench.said<cpc::Close>(), closed + 1);
  ck_assert(std::get<cpc::Close>(bench.commands.back()).key == node.incoming);
  ck_assert(bench.endpoint().carrier() != nullptr);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.device.complete_send(node.sender);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  bench.endpoints.queue_pair_failed(node.sender.verbs.qp_num, IBV_EVENT_QP_FATAL);
  ck_assert(bench.endpoint().carrier() == nullptr);
  ck_assert_uint_eq(bench.reports, 1);
}
END_TEST

/// The queue pair fails while a goodbye waits for room: nobody waits for it any more.
START_TEST(a_goodbye_that_waits_is_given_up) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  while (bench.endpoint().send_immediately({nullptr, "abcd", 4, 0, kTag})) {
  }
  const std::size_t posted = node.sender.sends.size();
  bench.endpoints.remove(&bench.endpoint_of_another());
  ck_assert_uint_eq(node.sender.sends.size(), posted);
  ck_assert(bench.endpoints.are_leaving());
  bench.device.fail_send(node.sender, IBV_WC_RETRY_EXC_ERR);
  bench.device.flush(node.sender);
  bench.endpoints.progress();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.reports, 1);
}
END_TEST

/// It has said goodbye, and we hear of it when we are about to: then ours would meet nobody.
START_TEST(a_goodbye_is_looked_for_before_ours) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  std::vector<std::byte> goodbye(PacketHeader::kSize + 4);
  PacketHeader{PacketKind::kGoodbye, 0, {}}.write(goodbye.data());
  store_be(goodbye.data() + PacketHeader::kSize, std::uint32_t{9});
  for (FakeSharedQueue* queue : bench.shared) {
    bench.device.receive(*queue, node.target, goodbye);
  }
  bench.endpoints.remove(&bench.endpoint());
  ck_assert(node.sender.sends.empty());
}
END_TEST

int main() {
  return run_suite("endpoints: X queues", {{a_shared_send_queue_goes_with_its_queue_pair, 3},
                                           {who_only_receives_goes_on_to, 4},
                                           {a_connection_that_nobody_misses_fails, 2},
                                           {a_message_stands_for_the_confirm, 2},
                                           {a_goodbye_that_fails_is_no_failure_of_others, 6},
                                           {a_goodbye_fails_while_another_connects, 3},
                                           the_queue_pair_of_a_peer_fails,
                                           a_goodbye_is_looked_for_before_ours,
                                           a_goodbye_that_waits_is_given_up});
}
