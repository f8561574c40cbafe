// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path on fake verbs: completions in every order, and every way in which one can fail.
#include <algorithm>
#include <array>

#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

constexpr int kFirstError = IBV_WC_LOC_LEN_ERR;
constexpr int kErrors = IBV_WC_GENERAL_ERR - kFirstError + 1;

constexpr const char* kTwoShared = "S,256,32,16,4,16,2:S,4096,32,16,4,16,2";

/// Everything that is posted on the link's own queue pairs is flushed, and taken.
void flush(PathBench& bench, Link& link) {
  bench.device.flush(bench.pair(link, 0));
  bench.device.flush(bench.pair(link, 1));
  while (bench.path->progress() > 0) {
  }
}

/// Nothing of what was sent is under way any more.
bool is_whole(Link& link) {
  return link.queues()[0].in_flight == 0 && link.queues()[1].in_flight == 0 && link.rdma().outstanding() == 0 &&
         link.queues()[0].sends->tx.is_full() && link.queues()[1].sends->tx.is_full();
}

}  // namespace

/// Two sends on each of three queue pairs and two messages that come in: completions of a queue pair keep their order,
/// others come as they like.
START_TEST(completions_come_in_every_order) {
  for (const int batch : {1, 2, 3, 16}) {
    std::array order{0, 0, 1, 1, 2, 2, 3, 3};
    PathBench bench({.queues = kTwoShared, .most_sends = 16, .poll_batch = batch});
    const unsigned all = bench.buffers_left();
    Link& one = bench.connect();
    Link& two = bench.connect();
    const std::vector<std::byte> message = PathBench::packet(PacketKind::kMessage);
    unsigned rounds = 0;
    do {
      ++rounds;
      for (int i = 0; i < 2; ++i) {
        ck_assert_int_eq(bench.send(one, 0), OPAL_SUCCESS);
        ck_assert_int_eq(bench.submit(one, bench.request(RdmaKind::kWrite)), OPAL_SUCCESS);
        ck_assert_int_eq(bench.send(two, 0), OPAL_SUCCESS);
      }
      for (const int what : order) {
        switch (what) {
          case 0:
            bench.device.complete_send(bench.pair(one, 0));
            break;
          case 1:
            bench.device.complete_send(bench.pair(one, 1));
            break;
          case 2:
            bench.device.complete_send(bench.pair(two, 0));
            break;
          default:
            bench.device.receive(*bench.shared[0], bench.pair(two), message);
            break;
        }
      }
      while (bench.path->progress() > 0) {
      }
      ck_assert_uint_eq(bench.sends_ended.size(), rounds * 4);
      ck_assert_uint_eq(bench.requests_ended.size(), rounds * 2);
      ck_assert_uint_eq(bench.messages, rounds * 2);
      ck_assert(is_whole(one) && is_whole(two));
    } while (std::next_permutation(order.begin(), order.end()));
    ck_assert_uint_eq(rounds, 2520);
    ck_assert(bench.failures.empty());
    ck_assert_uint_eq(bench.buffers_left(), all);
    const auto good = [](const std::vector<int>& ended) {
      return std::all_of(ended.begin(), ended.end(), [](int status) { return status == OPAL_SUCCESS; });
    };
    ck_assert(good(bench.sends_ended) && good(bench.requests_ended));
  }
}
END_TEST

/// What waits in the upper layer for buffers is tried as a whole after each call, so a call brings all that there are.
START_TEST(who_waits_for_buffers_gets_all_at_once) {
  constexpr int kBuffers = 12;
  constexpr int kBatch = 4;
  PathBench bench({.queues = "S,256,32,16,16", .most_sends = kBuffers, .poll_batch = kBatch});
  Link& link = bench.connect();
  const auto send_all = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ck_assert_int_eq(bench.send(link, 0, 200), OPAL_SUCCESS);
    }
  };
  const auto complete_all = [&](int count) {
    for (int i = 0; i < count; ++i) {
      bench.device.complete_send(bench.pair(link));
    }
  };

  send_all(kBuffers);
  complete_all(kBuffers);
  ck_assert_int_eq(bench.path->progress(), kBatch);  // nobody has asked for more than there are
  while (bench.path->progress() > 0) {
  }

  send_all(kBuffers);
  ck_assert_ptr_null(bench.message());
  complete_all(kBuffers);
  bench.device.empty_polls = 0;
  ck_assert_int_eq(bench.path->progress(), kBuffers);
  ck_assert_uint_eq(bench.sends_ended.size(), 2 * kBuffers);
  ck_assert_uint_eq(bench.device.empty_polls, 1);  // whoever waits is to take them, and nothing more may come
  ck_assert_int_eq(bench.path->progress(), 0);

  send_all(kBuffers);
  complete_all(kBuffers);
  ck_assert_int_eq(bench.path->progress(), kBatch);  // that was then
  while (bench.path->progress() > 0) {
  }
}
END_TEST

/// Open MPI sends one more for each that it is told of, and tries all of them after each call of progress(). So it is told of all,
/// and a flood takes few calls.
START_TEST(a_flood_goes_on_within_a_call) {
  constexpr int kBuffers = 12;
  constexpr int kFlood = 1000;
  PathBench bench({.queues = "S,256,32,16,16", .max_inline = 0, .most_sends = kBuffers, .poll_batch = 4});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  const auto send = [&] { return bench.send(link, 0, 200, false); };
  ck_assert_int_eq(send(), 1);  // nobody wants to hear of it
  for (int i = 1; i < kBuffers; ++i) {
    ck_assert_int_eq(send(), 1);
  }
  ck_assert_ptr_null(bench.message());

  int waiting = kFlood;
  bench.on_sent = [&](int /*status*/) {
    while (waiting > 0) {
      Fragment* const fragment = bench.message(0, 200, false);
      if (fragment == nullptr) {
        return;
      }
      ck_assert_int_eq(link.send(*fragment), OPAL_SUCCESS);  // it is told of this one too
      --waiting;
      bench.device.complete_send(bench.pair(link));
    }
  };
  for (int i = 0; i < kBuffers; ++i) {
    bench.device.complete_send(bench.pair(link));
  }
  ck_assert_int_eq(bench.path->progress(), kBuffers);  // they went before anybody was short
  ck_assert_int_eq(send(), OPAL_SUCCESS);
  bench.device.complete_send(bench.pair(link));
  ck_assert_int_eq(bench.path->progress(), kFlood + 1);
  ck_assert_int_eq(waiting, 0);
  ck_assert_uint_eq(bench.sends_ended.size(), kFlood + 1);
  ck_assert_uint_eq(bench.buffers_left(), all);
  ck_assert_int_eq(bench.path->progress(), 0);
  ck_assert_int_eq(bench.path->progress(), 0);  // nobody has missed any for a while
  ck_assert_int_eq(send(), 1);                  // as at the beginning
  bench.device.complete_send(bench.pair(link));
  ck_assert_int_eq(bench.path->progress(), 1);
}
END_TEST

// ---- Errors. _i is the status.

/// A failed send with somebody who waits for it.
START_TEST(a_message_with_a_callback_fails) {
  PathBench bench({.queues = kTwoShared, .most_sends = 8});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  for (int i = 0; i < 6; ++i) {
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  bench.device.fail_send(bench.pair(link), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].kind == LinkFailure::Kind::kCompletion && bench.failures[0].is_missed);
  ck_assert_int_eq(bench.failures[0].status, _i);
  ck_assert(bench.sends_ended == std::vector<int>(3, OPAL_ERR_UNREACH));  // it and the two that waited
  flush(bench, link);
  ck_assert(bench.sends_ended == std::vector<int>(6, OPAL_ERR_UNREACH));
  ck_assert_uint_eq(bench.buffers_left(), all);
  ck_assert_uint_eq(link.queues()[0].in_flight, 0);
}
END_TEST

START_TEST(a_message_without_a_callback_fails) {
  PathBench bench({.queues = kTwoShared, .max_inline = 0, .most_sends = 8});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  ck_assert_int_eq(bench.send(link, 0, 8, false), 1);
  bench.device.fail_send(bench.pair(link), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(!bench.failures[0].is_missed);
  ck_assert(bench.sends_ended.empty());
  ck_assert_uint_eq(bench.buffers_left(), all);
}
END_TEST

START_TEST(a_batch_fails) {
  PathBench bench({.queues = kTwoShared});
  Link& link = bench.connect();
  ck_assert(bench.send_immediately(link));
  bench.device.fail_send(bench.pair(link), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(!bench.failures[0].is_missed);
}
END_TEST

/// Of several requests of an operation the first fails, and the last is flushed after it.
START_TEST(a_read_fails) {
  PathBench bench({.rdma_depth = 8});
  Link& link = bench.connect();
  RdmaRequest* const read = bench.request(RdmaKind::kRead);
  read->operation.pieces = 4;  // two requests, of two pieces each
  for (std::size_t i = 1; i < 4; ++i) {
    read->operation.local[i] = read->operation.local[0];
  }
  ck_assert_int_eq(bench.submit(link, read), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.pair(link, 1).sends.size(), 2);
  bench.device.fail_send(bench.pair(link, 1), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].is_missed);
  ck_assert(bench.requests_ended.empty());  // the device may still write to its memory
  flush(bench, link);
  ck_assert(bench.requests_ended == std::vector<int>{OPAL_ERR_UNREACH});
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
}
END_TEST

START_TEST(a_receive_fails) {
  PathBench bench;
  Link& link = bench.connect();
  bench.device.fail_receive(bench.pair(link), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(!bench.failures[0].is_missed);
  ck_assert_int_eq(bench.failures[0].status, _i);
  flush(bench, link);
  ck_assert_uint_eq(link.queues()[0].receives.posted(), 0);
}
END_TEST

START_TEST(a_receive_of_a_shared_queue_fails) {
  PathBench bench({.queues = kTwoShared});
  Link& link = bench.connect();
  FakeQueuePair unknown;
  unknown.verbs.qp_num = 0x999;
  bench.device.fail_receive(*bench.shared[0], unknown, static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert(bench.failures.empty());  // nobody's
  const std::size_t posted = bench.shared[0]->receives.size();
  bench.device.fail_receive(*bench.shared[0], bench.pair(link), static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].link == &link && !bench.failures[0].is_missed);
  ck_assert_uint_ge(bench.shared[0]->receives.size() + 1, posted);
}
END_TEST

START_TEST(a_handshake_fails) {
  PathBench bench;
  (void)bench.connect();
  ibv_wc completion{};
  completion.wr_id = (77U << cpc::kHandshakeTagBits) | cpc::kHandshakeTag;
  completion.status = static_cast<ibv_wc_status>(_i);
  bench.device.completions.push_back(completion);
  bench.path->progress();
  ck_assert_uint_eq(bench.handshakes, 1);
  ck_assert(bench.failures.empty());
}
END_TEST

/// The marker's completion comes last, well or not.
START_TEST(a_marker_drains) {
  PathBench bench;
  Link& link = bench.connect();
  bench.close(link);
  link.post_drain_markers();
  ck_assert(!link.is_drained());
  for (const std::size_t queue : {0U, 1U}) {
    bench.device.fail_send(bench.pair(link, queue), static_cast<ibv_wc_status>(_i));
    while (!bench.pair(link, queue).receives.empty()) {
      bench.device.fail_receive(bench.pair(link, queue), IBV_WC_WR_FLUSH_ERR);
    }
  }
  while (bench.path->progress() > 0) {
  }
  ck_assert(link.is_drained());
  ck_assert(bench.sends_ended.empty());
}
END_TEST

/// X queues: one queue pair for several links.
START_TEST(a_shared_queue_pair_fails) {
  PathBench bench({.queues = "X,256,32,16,4,16,2:X,4096,32,16,4,16,2", .most_sends = 8});
  const unsigned all = bench.buffers_left();
  FakeQueuePair& sender = bench.device.make_queue_pair();
  cpc::XrcPath path;
  path.queue_pair = &sender.verbs;
  path.sender = 1;
  SharedSendQueue& sends = bench.path->sender(path);
  Link& one = bench.share(sends, 0x501);
  Link& two = bench.share(sends, 0x502);
  ck_assert_int_eq(bench.send(one), OPAL_SUCCESS);
  ck_assert_int_eq(bench.send(two), OPAL_SUCCESS);
  ck_assert(bench.send_immediately(one));
  ck_assert_int_eq(bench.submit(two, bench.request(RdmaKind::kWrite)), OPAL_SUCCESS);
  ck_assert_uint_eq(sender.sends.front().remote_srqn, 9);
  bench.device.fail_send(sender, static_cast<ibv_wc_status>(_i));
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].of_sender && bench.failures[0].link == &one && bench.failures[0].is_missed);
  ck_assert(sends.has_failed());
  bench.device.flush(sender);
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>(2, OPAL_ERR_UNREACH));
  ck_assert(bench.requests_ended == std::vector<int>{OPAL_ERR_UNREACH});
  bench.close(one);
  bench.close(two);
  ck_assert(one.is_drained() && two.is_drained());
  ck_assert_uint_eq(bench.buffers_left(), all);
  // A link that goes leaves its share behind, for completions that are still to come.
  bench.links.clear();
  ck_assert(std::all_of(sends.shares().begin(), sends.shares().end(),
                        [](const SendShare& share) { return share.link == nullptr; }));
}
END_TEST

// ---- What comes late, or from nowhere

/// X queues: the next connection comes through the same queue pair, over which the last goodbye may be under way.
START_TEST(a_goodbye_of_the_last_connection_is_none) {
  PathBench bench({.queues = "X,256,32,16,4,16,2"});
  cpc::XrcPath way_out;
  way_out.queue_pair = &bench.device.make_queue_pair().verbs;
  way_out.sender = 1;
  FakeQueuePair& target = bench.device.make_queue_pair();
  Link& link = bench.share(bench.path->sender(way_out), target.verbs.qp_num);
  ck_assert(link.receive_from(target.verbs.qp_num, 7).has_value());
  const auto goodbye = [&](std::uint32_t incarnation, std::size_t size = 4) {
    std::vector<std::byte> packet = PathBench::packet(PacketKind::kGoodbye, size);
    store_be(packet.data() + PacketHeader::kSize, incarnation);
    bench.device.receive(*bench.shared.front(), target, packet);
    bench.path->progress();
    return bench.goodbyes_arrived;
  };
  ck_assert_int_eq(goodbye(6), 0);
  ck_assert_int_eq(goodbye(7, 8), 0);
  ck_assert_int_eq(goodbye(7), 1);
}
END_TEST

/// The peer's answer was on its way when the link failed.
START_TEST(a_late_reply_is_nobodys) {
  PathBench bench;
  Link& link = bench.connect();
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  std::vector<std::byte> reply = PathBench::packet(PacketKind::kAtomicReply, AtomicReply::kSize);
  AtomicReply{0, 1, 5, true}.write(reply.data() + PacketHeader::kSize);
  bench.device.receive(bench.pair(link), reply);
  _i == 0 ? bench.fail(link) : bench.close(link);
  bench.path->progress();
  ck_assert(bench.failures.empty());
  ck_assert(bench.requests_ended == std::vector<int>{OPAL_ERR_UNREACH});
}
END_TEST

START_TEST(a_reply_to_nothing_breaks_the_protocol) {
  PathBench bench;
  Link& link = bench.connect();
  std::vector<std::byte> reply = PathBench::packet(PacketKind::kAtomicReply, AtomicReply::kSize);
  AtomicReply{0, 1, 5, true}.write(reply.data() + PacketHeader::kSize);
  bench.device.receive(bench.pair(link), reply);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].kind == LinkFailure::Kind::kBadPacket);
}
END_TEST

START_TEST(bad_packets_fail_the_link) {
  PathBench bench;
  Link& link = bench.connect();
  std::vector<std::byte> packet = PathBench::packet(PacketKind::kMessage);
  switch (_i) {
    case 0:  // no header
      packet.resize(3);
      break;
    case 1:  // no such kind
      packet[0] = std::byte{77};
      break;
    case 2:  // more credits than there are
      packet = PathBench::packet(PacketKind::kMessage, 8, {.credits = 9, .explicit_seen = 0});
      break;
    default:  // an atomic that is too short
      packet = PathBench::packet(PacketKind::kAtomic, 8);
      break;
  }
  bench.device.receive(bench.pair(link), packet);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].kind == LinkFailure::Kind::kBadPacket);
  ck_assert_uint_eq(bench.messages, 0);
}
END_TEST

START_TEST(an_unknown_queue_pair_speaks) {
  PathBench bench({.queues = kTwoShared});
  Link& link = bench.connect();
  FakeQueuePair unknown;
  unknown.verbs.qp_num = 0x999;
  bench.device.receive(*bench.shared[0], unknown, PathBench::packet(PacketKind::kClearToSend, 0));
  bench.device.receive(*bench.shared[0], bench.pair(link), PathBench::packet(PacketKind::kMessage));
  bench.device.receive(*bench.shared[0], bench.pair(link), PathBench::packet(PacketKind::kClearToSend, 0));
  bench.path->progress();
  ck_assert_uint_eq(bench.unknown, 1);
  ck_assert_uint_eq(bench.messages, 1);
  ck_assert_uint_eq(bench.cts, 1);
}
END_TEST

/// A peer that is up may send before we are, and ask for an answer.
START_TEST(messages_come_before_the_link_is_up) {
  PathBench bench;
  Link& link = bench.open();
  std::uint64_t word = 40;
  const auto address = reinterpret_cast<std::uintptr_t>(&word);
  bench.targets.add(5, address, address + sizeof word - 1);
  AtomicMessage add;
  add.address = address;
  add.rkey = 5;
  add.op = static_cast<std::uint16_t>(AtomicOp::kAdd);
  add.operand = 2;
  std::vector<std::byte> packet = PathBench::packet(PacketKind::kAtomic, AtomicMessage::kSize);
  add.write(packet.data() + PacketHeader::kSize);
  bench.receive(link);
  bench.device.receive(bench.pair(link), packet);
  bench.path->progress();
  ck_assert_uint_eq(bench.spoke, 1);
  ck_assert_uint_eq(bench.messages, 1);
  ck_assert_uint_eq(word, 42);
  ck_assert_uint_eq(bench.connections_wanted, 1);
  ck_assert(bench.pair(link).all_sends.empty() && link.has_waiting());
  bench.start(link);
  ck_assert_uint_eq(bench.pair(link).all_sends.size(), 1);
  AtomicReply reply;
  const std::vector<std::byte>& sent = bench.pair(link).all_sends[0].bytes;
  ck_assert(reply.read(sent.data() + PacketHeader::kSize, sent.size() - PacketHeader::kSize));
  ck_assert(reply.done && reply.value == 40);
}
END_TEST

int main() {
  return run_suite("path: completions", {completions_come_in_every_order,
                                         who_waits_for_buffers_gets_all_at_once,
                                         a_flood_goes_on_within_a_call,
                                         {a_message_with_a_callback_fails, kFirstError, kFirstError + kErrors},
                                         {a_message_without_a_callback_fails, kFirstError, kFirstError + kErrors},
                                         {a_batch_fails, kFirstError, kFirstError + kErrors},
                                         {a_read_fails, kFirstError, kFirstError + kErrors},
                                         {a_receive_fails, kFirstError, kFirstError + kErrors},
                                         {a_receive_of_a_shared_queue_fails, kFirstError, kFirstError + kErrors},
                                         {a_handshake_fails, kFirstError, kFirstError + kErrors},
                                         {a_marker_drains, kFirstError, kFirstError + kErrors},
                                         {a_shared_queue_pair_fails, kFirstError, kFirstError + kErrors},
                                         {a_late_reply_is_nobodys, 2},
                                         a_reply_to_nothing_breaks_the_protocol,
                                         {bad_packets_fail_the_link, 4},
                                         an_unknown_queue_pair_speaks,
                                         a_goodbye_of_the_last_connection_is_none,
                                         messages_come_before_the_link_is_up});
}
