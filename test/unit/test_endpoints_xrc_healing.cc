// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints with X queues whose queue pair to a node breaks: all that share it are made anew, each receives on meanwhile, and who is
// asked what has arrived answers.
#include <chrono>
#include <optional>
#include <vector>

#include "cpc/oob/xoob.h"
#include "test/unit/check_main.h"
#include "test/unit/endpoints_bench.h"

namespace fabric::test {
namespace {

constexpr std::size_t kCounts = 3;  // of two queues and a ring

/// Two processes of a node, to which messages go through one queue pair; the first also sends to us.
struct TwoOfANode {
  TwoOfANode() {
    bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1));
    (void)bench.endpoint();
    bench.tell(cpc::PostReceives{incoming, 1, {}, target->verbs.qp_num, 9});
    bench.tell(cpc::Connected{incoming, 1, {}, {}});
  }
  /// Sends a message to each, which arrives.
  void connect() {
    for (Endpoint* const endpoint : {&first(), &second()}) {
      ck_assert_int_eq(bench.send(*endpoint), OPAL_SUCCESS);
      connected(*endpoint, 1);
    }
    bench.device.complete_send(*sender);
    bench.device.complete_send(*sender);
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.sends_ended.size(), 2);
  }
  /// The progress thread has connected.
  void connected(Endpoint& endpoint, cpc::LinkNumber link) {
    bench.tell(cpc::PostReceives{outgoing(endpoint), link, {}});
    bench.tell(
        cpc::Connected{outgoing(endpoint), link, {{7, 7}}, {&sender->verbs, sender->verbs.qp_num, {1, 2}, link}});
  }
  Endpoint& first() { return bench.endpoint(); }
  Endpoint& second() { return bench.endpoint_of_another(); }
  static cpc::ConnectionKey outgoing(const Endpoint& endpoint) {
    return {endpoint.key().peer, 0, 0, cpc::Direction::kOutgoing};
  }
  /// The queue pair breaks, and the next one is there to be connected.
  void lose(ibv_wc_status status = IBV_WC_RETRY_EXC_ERR) {
    bench.device.fail_send(*sender, status);
    bench.device.flush(*sender);
    bench.endpoints.progress();
    sender = &bench.device.make_queue_pair();
  }
  void flushed(const Endpoint& endpoint, cpc::LinkNumber link) {
    bench.tell(cpc::Flushing{outgoing(endpoint), link});
    bench.endpoints.progress();
  }
  /// Of the peer that sends to us.
  void packet_arrives(PacketKind kind, std::span<const std::byte> body) {
    std::vector<std::byte> packet(PacketHeader::kSize);
    PacketHeader{kind, kTag, {}}.write(packet.data());
    packet.insert(packet.end(), body.begin(), body.end());
    bench.device.receive(*bench.shared[0], *target, packet);
    bench.endpoints.progress();
  }
  void message_arrives() { packet_arrives(PacketKind::kMessage, std::vector<std::byte>(4)); }
  /// What it has of the first queue, and what it says beside.
  void counts_arrive(std::uint32_t taken, const CountsOfOneWay& told) {
    const PacketCounts counts[kCounts] = {{0, taken}, {}, {}};
    std::vector<std::byte> body(counts_size(kCounts) + CountsOfOneWay::kSize);
    write_counts(body.data(), counts, 1);
    told.write(body.data() + counts_size(kCounts));
    packet_arrives(PacketKind::kCounts, body);
  }
  /// What has been posted on the newest queue pair for a peer: packets of a kind.
  std::vector<FakeSend> posted(PacketKind kind) const {
    std::vector<FakeSend> found;
    for (const FakeSend& one : sender->all_sends) {
      if (one.opcode == IBV_WR_SEND && one.bytes.at(0) == static_cast<std::byte>(kind)) {
        found.push_back(one);
      }
    }
    return found;
  }
  /// The last that we have said of counts.
  CountsOfOneWay said() const {
    const std::vector<FakeSend> all = posted(PacketKind::kCounts);
    ck_assert_uint_gt(all.size(), 0);
    return CountsOfOneWay::read(all.back().bytes.data() + PacketHeader::kSize + counts_size(kCounts));
  }
  std::uint32_t said_taken() const {
    return load_be<std::uint32_t>(posted(PacketKind::kCounts).back().bytes.data() + PacketHeader::kSize);
  }

  EndpointsBench bench{kXQueues, cpc::kXoob, true};
  FakeQueuePair* sender = &bench.device.make_queue_pair();
  FakeQueuePair* const target = &bench.device.make_queue_pair();
  const cpc::ConnectionKey incoming = EndpointsBench::key(cpc::Direction::kIncoming);
};

bool send_inline(Endpoint& endpoint, const char (&text)[5]) {
  return endpoint.send_immediately({nullptr, text, 4, 0, kTag});
}

}  // namespace

/// A message is under way to each, before it to the first one that the device has copied. The peer has both (2), the first (1), or
/// none (0). What it sends goes on to arrive.
START_TEST(what_shares_a_queue_pair_is_made_anew) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  node.connect();
  ck_assert(send_inline(node.first(), "abcd"));
  ck_assert_int_eq(bench.send(node.first()), OPAL_SUCCESS);
  ck_assert_int_eq(bench.send(node.second()), OPAL_SUCCESS);
  node.lose();
  ck_assert(node.first().carrier() == nullptr && node.second().carrier() == nullptr);
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 4);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 2);
  for (const cpc::Command& one : bench.commands) {
    if (const auto* close = std::get_if<cpc::Close>(&one); close != nullptr) {
      ck_assert(close->key.direction == cpc::Direction::kOutgoing && close->link == 1);
    }
  }
  node.message_arrives();
  ck_assert_uint_eq(bench.counters.messages_received, 1);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 0);
  node.flushed(node.first(), 1);
  node.flushed(node.second(), 1);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 2);
  node.connected(node.first(), 2);
  ck_assert_uint_eq(node.posted(PacketKind::kMessage).size(), 0);
  ck_assert_uint_eq(node.said().asks, 2);
  ck_assert_uint_eq(node.said().answers, 0);
  ck_assert_uint_eq(node.said_taken(), 1);
  const auto taken = static_cast<std::uint32_t>(1 + _i);
  node.counts_arrive(taken, {0, 1});  // of the connection before
  ck_assert(node.first().carrier() == nullptr);
  node.counts_arrive(taken, {0, 2});
  ck_assert(node.first().carrier() != nullptr);
  const std::vector<FakeSend> again = node.posted(PacketKind::kMessage);
  ck_assert_uint_eq(again.size(), 2 - _i);
  if (_i == 0) {
    ck_assert_uint_eq(again[0].bytes.size(), PacketHeader::kSize + 4);
    ck_assert(again[0].bytes[PacketHeader::kSize] == static_cast<std::byte>('a'));
  }
  ck_assert_uint_eq(bench.sends_ended.size(), _i == 2 ? 3 : 2);
  ck_assert(node.second().carrier() == nullptr);  // nobody has answered there
  node.message_arrives();
  ck_assert_uint_eq(bench.counters.messages_received, 2);
  ck_assert_uint_eq(bench.counters.connections_healed, 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The device has copied messages to both, and one of those to the first has arrived: each gets its own again.
START_TEST(copies_go_to_whom_they_were_for) {
  TwoOfANode node;
  node.connect();
  ck_assert(send_inline(node.first(), "1aaa"));
  ck_assert(send_inline(node.second(), "2aaa"));
  ck_assert(send_inline(node.first(), "1bbb"));
  ck_assert(send_inline(node.second(), "2bbb"));
  node.lose();
  node.flushed(node.first(), 1);
  node.flushed(node.second(), 1);
  node.connected(node.first(), 2);
  node.counts_arrive(2, {0, 2});
  const std::vector<FakeSend> again = node.posted(PacketKind::kMessage);
  ck_assert_uint_eq(again.size(), 1);
  ck_assert_int_eq(std::memcmp(again[0].bytes.data() + PacketHeader::kSize, "1bbb", 4), 0);
  ck_assert_uint_eq(again[0].bytes.size(), PacketHeader::kSize + 4);
  ck_assert_uint_eq(node.bench.reports, 0);
}
END_TEST

/// The peer asks what we have of it. 0: we have no connection to it, and make one for that; 1: we have one; 2: it has broken, and the
/// next one answers; 3: the answer is lost with it. What is asked by a connection before the newest is not answered.
START_TEST(who_is_asked_answers) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  if (_i > 0) {
    node.connect();
  }
  node.message_arrives();
  if (_i == 2) {
    ck_assert_int_eq(bench.send(node.first()), OPAL_SUCCESS);
    node.lose();
    node.flushed(node.first(), 1);
  }
  bench.commands.clear();
  node.counts_arrive(0, {8, 0});
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 0);
  ck_assert_uint_eq(node.posted(PacketKind::kCounts).size(), 0);
  node.counts_arrive(0, {9, 0});
  ck_assert_uint_eq(bench.said<cpc::Connect>(), _i == 0 ? 1 : 0);
  if (_i == 0) {
    bench.tell(cpc::Failed{TwoOfANode::outgoing(node.first()), 1, "no way to the peer", "", true});
    bench.tell(cpc::Flushing{TwoOfANode::outgoing(node.first()), 1});
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.said<cpc::Connect>(), 2);
    node.connected(node.first(), 2);
  } else if (_i == 2) {
    node.connected(node.first(), 2);
  } else if (_i == 3) {
    ck_assert_uint_eq(node.said().answers, 9);
    node.lose();
    node.flushed(node.first(), 1);
    node.connected(node.first(), 2);
  }
  ck_assert_uint_eq(node.said().answers, 9);
  ck_assert_uint_eq(node.said().asks, _i == 1 ? 0 : 2);
  ck_assert_uint_eq(node.said_taken(), 1);
  node.counts_arrive(_i == 0 ? 0 : 1, {0, 2});
  ck_assert(node.first().carrier() != nullptr);
  ck_assert_uint_eq(node.posted(PacketKind::kCounts).size(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// A process of the node has gone without having heard our goodbye, and that breaks the queue pair while a message to the other is
/// under way: it goes over the next one.
START_TEST(who_has_gone_costs_the_others_nothing) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  node.connect();
  bench.endpoints.remove(&node.second());
  ck_assert(send_inline(node.first(), "abcd"));
  node.lose(IBV_WC_REM_INV_REQ_ERR);
  node.flushed(node.first(), 1);
  node.connected(node.first(), 2);
  node.counts_arrive(1, {0, 2});
  ck_assert_uint_eq(node.posted(PacketKind::kMessage).size(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The peer takes leave while our connection to it is made anew. All has been posted, so it has what it wants.
START_TEST(the_peer_leaves_meanwhile) {
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  node.connect();
  ck_assert(send_inline(node.first(), "abcd"));
  node.lose();
  std::vector<std::byte> goodbye(PacketHeader::kSize + 4);
  PacketHeader{PacketKind::kGoodbye, 0, {}}.write(goodbye.data());
  store_be(goodbye.data() + PacketHeader::kSize, std::uint32_t{9});
  for (FakeSharedQueue* queue : bench.shared) {
    bench.device.receive(*queue, *node.target, goodbye);
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Close>(), 4);  // that of both, the next one to it, and that by which it sent
  node.flushed(node.first(), 1);
  node.flushed(node.first(), 2);
  ck_assert_uint_eq(bench.counters.connections_healed, 0);
  ck_assert_int_eq(bench.send(node.first()), OPAL_SUCCESS);
  node.connected(node.first(), 3);
  ck_assert_uint_eq(node.said().asks, 3);  // nobody has said whether the last has arrived
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
}
END_TEST

/// The queue pair to a node breaks, and one of those that it led to has ended without a word, as a process may that only receives. Who
/// has nothing to say to it does not miss it, if it is of another job (0); in one's own, it has died (1). It is missed as well if
/// something waits for it (2), a write has not ended (3), or it is there and cannot be reached (4).
START_TEST(who_has_ended_without_a_word) {
  using std::chrono::milliseconds;
  TwoOfANode node;
  EndpointsBench& bench = node.bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1), std::chrono::hours(1), milliseconds(1));
  node.connect();
  if (_i != 1) {
    opal_proc_local_get()->proc_name.jobid = 2;
  }
  ck_assert(send_inline(node.second(), "abcd"));  // the device has copied it, and says nothing of its own accord
  if (_i == 3) {
    ck_assert_int_eq(bench.submit(node.second()), OPAL_SUCCESS);
  }
  node.lose();
  node.flushed(node.first(), 1);
  node.flushed(node.second(), 1);
  if (_i == 2) {
    ck_assert_int_eq(bench.send(node.second()), OPAL_SUCCESS);
  }
  const cpc::ConnectionKey key = TwoOfANode::outgoing(node.second());
  bench.tell(cpc::Failed{key, 2, "nobody listens", "", true, _i != 4});
  bench.tell(cpc::Flushing{key, 2});
  bench.endpoints.progress();
  const unsigned reports = _i == 0 || _i == 4 ? 0 : 1;
  ck_assert_uint_eq(bench.reports, reports);
  ck_assert_uint_eq(bench.upper_layer_told, reports);
  if (_i == 0) {  // what is sent to it now fails, and that it is told
    ck_assert_int_eq(bench.send(node.second()), OPAL_SUCCESS);
    ck_assert(std::get<cpc::Connect>(bench.commands.back()).target.was_there);
    bench.tell(cpc::Failed{key, 3, "nobody listens", "", true, true});
    bench.endpoints.progress();
    ck_assert_uint_eq(bench.reports, 1);
    ck_assert_int_eq(bench.send(node.second()), OPAL_ERR_UNREACH);
  }
  node.connected(node.first(), 2);
  node.counts_arrive(1, {0, 2});
  ck_assert(node.first().carrier() != nullptr);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("endpoints: X queues that break", {{what_shares_a_queue_pair_is_made_anew, 3},
                                                      copies_go_to_whom_they_were_for,
                                                      {who_is_asked_answers, 4},
                                                      who_has_gone_costs_the_others_nothing,
                                                      the_peer_leaves_meanwhile,
                                                      {who_has_ended_without_a_word, 5}});
}
