// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path on fake verbs: credits and room that run out and come back, and posts that are refused.
#include <array>

#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

using namespace fabric;
using namespace fabric::test;

START_TEST(credits_run_out_and_come_back) {
  PathBench bench;
  Link& link = bench.connect();
  for (int i = 0; i < 8; ++i) {
    ck_assert_int_eq(bench.send(link, 0, 8, false), 1);  // copied by the device, and done
  }
  ck_assert_int_eq(bench.send(link, 0, 8, false), OPAL_SUCCESS);  // waits, so it is called back
  ck_assert(!bench.send_immediately(link));                       // must not overtake
  ck_assert_uint_eq(bench.counters.waits_for_credit, 1);
  ck_assert_uint_eq(bench.pair(link).all_sends.size(), 8);

  bench.receive(link, {.credits = 2, .explicit_seen = 0});
  ck_assert_int_eq(bench.path->progress(), 1);
  ck_assert_uint_eq(bench.pair(link).all_sends.size(), 9);
  ck_assert(bench.send_immediately(link));
  ck_assert(!bench.send_immediately(link));
  // The one that had waited tells its callback when it is done.
  ck_assert(bench.sends_ended.empty());
  while (!bench.pair(link).sends.empty()) {
    bench.device.complete_send(bench.pair(link));
  }
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>{OPAL_SUCCESS});
}
END_TEST

START_TEST(room_runs_out_and_comes_back) {
  PathBench bench({.queues = "S,256,32,16,4,16,2:S,4096,32,16,4,16,2"});
  Link& link = bench.connect();
  FakeQueuePair& pair = bench.pair(link);
  for (int i = 0; i < 4; ++i) {
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.counters.waits_for_slot, 2);
  ck_assert_uint_eq(pair.all_sends.size(), 4);
  bench.device.complete_send(pair);
  bench.path->progress();
  ck_assert_uint_eq(pair.all_sends.size(), 5);
  ck_assert_uint_eq(bench.sends_ended.size(), 1);
  while (!pair.sends.empty()) {
    bench.device.complete_send(pair);
    bench.path->progress();
  }
  ck_assert_uint_eq(pair.all_sends.size(), 6);
  ck_assert_uint_eq(bench.sends_ended.size(), 6);
}
END_TEST

START_TEST(credits_are_given_back_by_a_message_of_their_own) {
  PathBench bench;
  Link& link = bench.connect();
  for (int i = 0; i < 4; ++i) {
    bench.receive(link);
  }
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 4);
  ck_assert_uint_eq(bench.counters.credit_messages, 1);
  PacketHeader header;
  const FakeSend& sent = bench.pair(link).all_sends.back();
  ck_assert(header.read(sent.bytes.data(), sent.bytes.size()) && header.kind == PacketKind::kCredits);
  ck_assert_uint_eq(header.grant.credits, 4);
}
END_TEST

// A device that copies nothing: credits need buffers too.
constexpr BenchOptions kWithoutInline{.max_inline = 0, .most_sends = 8};

/// So many messages of the peer's come in that credits are due.
/// `seen`: reserved receives that it has posted again.
void make_credits_due(PathBench& bench, Link& link, std::uint16_t seen = 0) {
  for (int i = 0; i < 3; ++i) {
    bench.receive(link);
  }
  bench.receive(link, {.credits = 0, .explicit_seen = seen});
  bench.path->progress();
}

START_TEST(credits_go_while_messages_that_wait_for_credits_hold_all_buffers) {
  PathBench bench(kWithoutInline);
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  FakeQueuePair& pair = bench.pair(link);
  for (int i = 0; i < 8; ++i) {
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  while (!pair.sends.empty()) {
    bench.device.complete_send(pair);
  }
  bench.path->progress();
  while (Fragment* const one = bench.message()) {
    ck_assert_int_eq(link.send(*one), OPAL_SUCCESS);
  }
  ck_assert_uint_eq(bench.counters.waits_for_credit, all);
  ck_assert(pair.sends.empty());

  // More often than there are buffers of any kind: each goes back to where it came from.
  for (unsigned i = 1; i <= 200; ++i) {
    make_credits_due(bench, link, i > 1 ? 1 : 0);
    ck_assert_uint_eq(bench.counters.credit_messages, i);
    ck_assert_uint_eq(pair.sends.size(), 1);
    PacketHeader header;
    const FakeSend& sent = pair.sends.front();
    ck_assert(header.read(sent.bytes.data(), sent.bytes.size()) && header.kind == PacketKind::kCredits);
    ck_assert_uint_eq(header.grant.credits, 4);
    bench.device.complete_send(pair);
    ck_assert_int_eq(bench.path->progress(), 1);
  }
  ck_assert(bench.failures.empty());
  ck_assert_uint_eq(bench.buffers_left(), 0);
}
END_TEST

/// An upper layer may be unable to keep them until there is a buffer.
START_TEST(control_messages_have_buffers_when_all_are_out) {
  PathBench bench(kWithoutInline);
  Link& link = bench.connect();
  while (bench.message() != nullptr) {  // others hold them
  }
  for (int i = 0; i < 20; ++i) {
    Fragment* const one = get_unlimited(bench.path->queues(), 0);
    ck_assert_ptr_nonnull(one);
    ck_assert_ptr_null(bench.path->get_send(0));
    one->segments[0].seg_len = kMostControl;
    one->des_flags = MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
    one->des_cbfunc = nullptr;
    one->tag = PathBench::kTag;
    ck_assert_int_ge(link.send(*one), OPAL_SUCCESS);
  }
  const FakeQueuePair& pair = bench.pair(link);
  ck_assert_uint_eq(pair.sends.size(), 8);  // as many as there are credits
  ck_assert_uint_eq(pair.sends.front().bytes.size(), PacketHeader::kSize + kMostControl);
}
END_TEST

START_TEST(credits_go_when_there_is_a_buffer_again) {
  PathBench bench(kWithoutInline);
  std::vector<Fragment*> taken;
  while (Fragment* const one = bench.message()) {
    taken.push_back(one);
  }
  const auto make_due = [&bench] {  // no more memory can be registered for them
    bench.device.registers = true;
    Link& link = bench.connect();
    bench.device.registers = false;
    make_credits_due(bench, link);
  };
  unsigned posted = 0;
  do {
    ck_assert_uint_lt(bench.links.size(), 1000);
    ++posted;
    make_due();
  } while (bench.counters.credit_messages == posted);
  --posted;
  ck_assert_uint_gt(posted, 1);
  FakeQueuePair& last = bench.pair(*bench.links.back());
  ck_assert(last.sends.empty());
  // One of another link's completes.
  bench.device.complete_send(bench.pair(*bench.links.front()));
  ck_assert_int_eq(bench.path->progress(), 1);
  ck_assert_uint_eq(bench.counters.credit_messages, posted + 1);
  ck_assert_uint_eq(last.sends.size(), 1);
  // The next one goes from a message's buffer.
  make_due();
  ck_assert_uint_eq(bench.counters.credit_messages, posted + 1);
  put_back(taken.back());
  taken.pop_back();
  ck_assert_int_eq(bench.path->progress(), 0);
  ck_assert_uint_eq(bench.counters.credit_messages, posted + 2);
  for (Fragment* const one : taken) {
    put_back(one);
  }
}
END_TEST

START_TEST(buffers_of_credits_come_back_from_links_that_end) {
  PathBench bench(kWithoutInline);
  std::vector<Fragment*> taken;
  while (Fragment* const one = bench.message()) {
    taken.push_back(one);
  }
  for (unsigned i = 1; i <= 200; ++i) {
    Link& link = bench.connect();
    make_credits_due(bench, link);
    ck_assert_uint_eq(bench.counters.credit_messages, i);
    if (_i == 0) {
      bench.close(link);
    }
    bench.device.flush(bench.pair(link, 0));
    bench.device.flush(bench.pair(link, 1));
    while (bench.path->progress() > 0) {
    }
    ck_assert(link.state() == (_i == 0 ? Link::State::kClosed : Link::State::kFailed));
    bench.links.clear();
  }
  ck_assert_uint_eq(bench.buffers_left(), 0);
  for (Fragment* const one : taken) {
    put_back(one);
  }
}
END_TEST

START_TEST(receives_are_posted_when_there_is_memory_again) {
  PathBench bench;
  Link& link = bench.connect();
  bench.device.receive_error = ENOMEM;
  for (int i = 0; i < 5; ++i) {
    bench.receive(link);
  }
  bench.path->progress();
  ck_assert_uint_eq(bench.pair(link).receives.size(), 5);  // of 8 + 2
  bench.device.receive_error = 0;
  ck_assert_int_eq(bench.path->progress(), 0);
  ck_assert_uint_eq(bench.pair(link).receives.size(), 10);
}
END_TEST

// ---- Refused posts

constexpr std::array kErrors{ENOMEM, EINVAL, EFAULT, ENODEV};

/// Verbs refuses with kErrors[index]; whatever is then sent must fail the link once, with that error.
void check_refusal(const PathBench& bench, int index) {
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].kind == LinkFailure::Kind::kRefusedPost);
  ck_assert_int_eq(bench.failures[0].error_number, kErrors[static_cast<std::size_t>(index)]);
  ck_assert(bench.failures[0].is_missed);
}

START_TEST(a_callback_can_send_though_its_buffer_was_the_last) {
  PathBench bench({.most_sends = 1});
  Link& link = bench.connect();
  int more = 3;
  bench.on_sent = [&](int /*status*/) {
    if (more-- > 0) {
      ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
      ck_assert_uint_eq(bench.buffers_left(), 0);
    }
  };
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.buffers_left(), 0);
  for (int i = 0; i < 4; ++i) {
    bench.device.complete_send(bench.pair(link));
    bench.path->progress();
  }
  ck_assert(bench.sends_ended == std::vector<int>(4, OPAL_SUCCESS));
  ck_assert_uint_eq(bench.buffers_left(), 1);
}
END_TEST

START_TEST(a_refused_message_is_the_callers_still) {
  const int error = kErrors[static_cast<std::size_t>(_i % 4)];
  const bool is_inline = _i >= 4;
  PathBench bench({.most_sends = 4});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  bench.device.refuse_sends(error);
  ck_assert_int_eq(bench.send(link, 0, 8, !is_inline), OPAL_ERR_UNREACH);
  check_refusal(bench, _i % 4);
  ck_assert(bench.sends_ended.empty());
  ck_assert_uint_eq(bench.buffers_left(), all);
}
END_TEST

START_TEST(a_refused_immediate_message_is_lost_with_the_link) {
  PathBench bench;
  Link& link = bench.connect();
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i)]);
  ck_assert(bench.send_immediately(link));
  check_refusal(bench, _i);
}
END_TEST

START_TEST(refused_after_waiting_every_callback_comes_once) {
  PathBench bench({.most_sends = 16});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  for (int i = 0; i < 12; ++i) {
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i)], 1);
  bench.receive(link, {.credits = 8, .explicit_seen = 0});
  bench.path->progress();
  check_refusal(bench, _i);
  ck_assert(bench.sends_ended == std::vector<int>(3, OPAL_ERR_UNREACH));  // 9 are under way
  bench.device.flush(bench.pair(link));
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>(12, OPAL_ERR_UNREACH));
  ck_assert_uint_eq(bench.buffers_left(), all);
}
END_TEST

START_TEST(refused_credits_fail_the_link) {
  PathBench bench({.max_inline = _i >= 4 ? 0U : 128U, .most_sends = 2});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i % 4)]);
  for (int i = 0; i < 4; ++i) {
    bench.receive(link);
  }
  bench.path->progress();
  check_refusal(bench, _i % 4);
  ck_assert_uint_eq(bench.buffers_left(), all);
}
END_TEST

START_TEST(a_refused_write_is_the_callers_still) {
  PathBench bench;
  Link& link = bench.connect();
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i)]);
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kWrite)), OPAL_ERR_UNREACH);
  check_refusal(bench, _i);
  ck_assert(bench.requests_ended.empty());
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
}
END_TEST

START_TEST(a_refused_atomic_message_ends_once) {
  PathBench bench;
  Link& link = bench.connect();
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i)]);
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_ERR_UNREACH);
  check_refusal(bench, _i);
  ck_assert(bench.requests_ended.empty());
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
}
END_TEST

START_TEST(refused_after_waiting_an_atomic_message_ends_once) {
  PathBench bench({.rdma_depth = 1});
  Link& link = bench.connect();
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  ck_assert_uint_eq(link.rdma().outstanding(), 2);
  bench.device.refuse_sends(kErrors[static_cast<std::size_t>(_i)]);
  std::vector<std::byte> reply = PathBench::packet(PacketKind::kAtomicReply, AtomicReply::kSize);
  AtomicReply{0, 1, 5, true}.write(reply.data() + PacketHeader::kSize);
  bench.device.receive(bench.pair(link), reply);
  bench.path->progress();
  check_refusal(bench, _i);
  ck_assert(bench.requests_ended == (std::vector<int>{OPAL_SUCCESS, OPAL_ERR_UNREACH}));
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
}
END_TEST

int main() {
  return run_suite("path: sending", {credits_run_out_and_come_back,
                                     room_runs_out_and_comes_back,
                                     credits_are_given_back_by_a_message_of_their_own,
                                     credits_go_while_messages_that_wait_for_credits_hold_all_buffers,
                                     control_messages_have_buffers_when_all_are_out,
                                     credits_go_when_there_is_a_buffer_again,
                                     {buffers_of_credits_come_back_from_links_that_end, 2},
                                     receives_are_posted_when_there_is_memory_again,
                                     a_callback_can_send_though_its_buffer_was_the_last,
                                     {a_refused_message_is_the_callers_still, 8},
                                     {a_refused_immediate_message_is_lost_with_the_link, 4},
                                     {refused_after_waiting_every_callback_comes_once, 4},
                                     {refused_credits_fail_the_link, 8},
                                     {a_refused_write_is_the_callers_still, 4},
                                     {a_refused_atomic_message_ends_once, 4},
                                     {refused_after_waiting_an_atomic_message_ends_once, 4}});
}
