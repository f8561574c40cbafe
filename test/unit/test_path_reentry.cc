// SPDX-License-Identifier: BSD-3-Clause
//
// The packet path on fake verbs: callbacks of the upper layer that send, call progress again, and end the link.
#include <algorithm>
#include <array>
#include <cerrno>

#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

/// A message whose first byte after the header is a number.
std::vector<std::byte> numbered(int number) {
  std::vector<std::byte> packet = PathBench::packet(PacketKind::kMessage);
  packet[PacketHeader::kSize] = static_cast<std::byte>(number);
  return packet;
}

}  // namespace

START_TEST(a_message_is_answered_from_its_callback) {
  PathBench bench;
  Link& link = bench.connect();
  bench.on_message = [&] { ck_assert(bench.send_immediately(link)); };
  for (int round = 0; round < 100; ++round) {
    bench.receive(link, {.credits = static_cast<std::uint16_t>(round > 0 ? 1 : 0), .explicit_seen = 0});
    bench.path->progress();
    bench.device.complete_send(bench.pair(link));
  }
  ck_assert_uint_eq(bench.counters.messages_sent_inline, 100);
  ck_assert_uint_eq(bench.pair(link).all_sends.size(), 100 + bench.counters.credit_messages);
}
END_TEST

START_TEST(a_callback_sends_the_next_and_the_next) {
  PathBench bench({.queues = "S,256,32,16,4,16,2:S,4096,32,16,4,16,2"});
  Link& link = bench.connect();
  int left = 100;
  bench.on_sent = [&](int status) {
    ck_assert_int_eq(status, OPAL_SUCCESS);
    if (left-- > 0) {
      ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
    }
  };
  for (int i = 0; i < 6; ++i) {  // two of them wait
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  while (!bench.pair(link).sends.empty()) {
    bench.device.complete_send(bench.pair(link));
    bench.path->progress();
  }
  ck_assert_uint_eq(bench.sends_ended.size(), 106);
}
END_TEST

/// Messages that came in order are delivered in order, whoever calls progress.
START_TEST(nested_progress_keeps_the_order) {
  PathBench bench({.poll_batch = 1 + _i});
  Link& link = bench.connect();
  std::vector<int> begun;
  int next = 0;
  for (; next < 4; ++next) {
    bench.device.receive(bench.pair(link), numbered(next));
  }
  bench.on_message = [&] {
    begun.push_back(static_cast<int>(bench.last_message[0]));
    if (next < 8) {
      bench.device.receive(bench.pair(link), numbered(next++));
    }
    bench.path->progress();
  };
  while (begun.size() < 8 && bench.path->progress() > 0) {
  }
  ck_assert(begun == (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}
END_TEST

START_TEST(nested_progress_takes_little_stack) {
  PathBench bench({.queues = "S,256,128,64,4,128,2", .poll_batch = PacketPath::kMaxPollBatch});
  Link& link = bench.connect();
  const std::vector<std::byte> message = PathBench::packet(PacketKind::kMessage);
  const auto receive = [&] { bench.device.receive(*bench.shared[0], bench.pair(link), message); };
  constexpr int kDeep = 64;
  std::array<std::uintptr_t, kDeep> at{};
  std::size_t depth = 0;
  bench.on_message = [&] {
    at[depth++] = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (depth < kDeep) {
      receive();
      bench.path->progress();
    }
  };
  receive();
  bench.path->progress();
  ck_assert_uint_eq(depth, kDeep);
  // The test's own frames are in it. A batch of completions would be 12 KiB.
  ck_assert_uint_lt((at.front() - at.back()) / (kDeep - 1), 4096);
  ck_assert(!bench.path->is_in_progress());
}
END_TEST

/// A callback ends the link in the middle of a batch; what the batch has of it ends quietly.
START_TEST(a_callback_ends_the_link) {
  const bool closes = _i % 2 == 0;
  const bool is_nested = _i >= 2;
  PathBench bench({.most_sends = 16});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  for (int i = 0; i < 10; ++i) {  // two of them wait
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  }
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  bench.on_message = [&] {
    if (bench.messages == 1) {
      closes ? bench.close(link) : bench.fail(link);
      bench.device.flush(bench.pair(link, 0));
      bench.device.flush(bench.pair(link, 1));
      if (is_nested) {
        bench.path->progress();
      }
    }
  };
  bench.receive(link);
  bench.receive(link);
  bench.device.complete_send(bench.pair(link));
  while (bench.path->progress() > 0) {
  }
  // Of a closed link nobody waits for messages, but operations on memory are called back in any case.
  ck_assert_uint_eq(bench.sends_ended.size(), closes ? 1 : 10);
  ck_assert(bench.requests_ended == std::vector<int>{OPAL_ERR_UNREACH});
  ck_assert_uint_eq(bench.buffers_left(), all);
  // Nothing was posted on it any more.
  ck_assert(bench.pair(link).sends.empty());
  ck_assert(bench.pair(link).receives.empty());
  link.stop(Link::State::kClosed);
  link.post_drain_markers();
  while (!bench.pair(link, 0).sends.empty() || !bench.pair(link, 1).sends.empty()) {
    bench.device.flush(bench.pair(link, 0));
    bench.device.flush(bench.pair(link, 1));
    bench.path->progress();
  }
  ck_assert(link.is_drained());
}
END_TEST

/// What one lacks does not come back, and another leaves the list of those that lack something while a callback runs.
START_TEST(nested_progress_ends_with_a_link_that_still_lacks_something) {
  PathBench bench({.most_sends = 2});
  Link& without_receives = bench.connect();
  Link& without_buffer = bench.connect();
  Link& other = bench.connect();
  std::array<std::byte, 4096> memory{};
  const auto write = [&] {
    RdmaRequest* const made = bench.request(RdmaKind::kWrite);
    made->operation.local[0] = {memory.data(), memory.size()};
    return made;
  };
  std::vector<Fragment*> taken;
  while (Fragment* const one = bench.message()) {
    taken.push_back(one);
  }
  ck_assert_int_eq(bench.submit(other, write()), OPAL_SUCCESS);
  bench.device.registers = false;
  ck_assert_int_eq(bench.submit(without_receives, write()), OPAL_SUCCESS);  // may have memory registered after `other`
  bench.device.receive_error = ENOMEM;
  for (int i = 0; i < 5; ++i) {
    bench.receive(without_receives);
  }
  bench.path->progress();
  ck_assert_int_eq(bench.submit(without_buffer, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  bench.path->progress();
  ck_assert(bench.pair(without_buffer).sends.empty());
  for (Fragment* const one : taken) {
    put_back(one);
  }
  bench.on_finished = [&](int status) {
    if (status != OPAL_SUCCESS) {
      bench.path->progress();
    }
  };
  bench.device.complete_send(bench.pair(other, 1));
  bench.path->progress();
  ck_assert(bench.requests_ended == (std::vector<int>{OPAL_SUCCESS, OPAL_ERR_OUT_OF_RESOURCE}));
  ck_assert_uint_eq(bench.pair(without_buffer).sends.size(), 1);
  ck_assert_uint_eq(bench.pair(without_receives).receives.size(), 5);
  bench.device.receive_error = 0;
  bench.path->progress();
  ck_assert_uint_eq(bench.pair(without_receives).receives.size(), 10);
}
END_TEST

int main() {
  return run_suite("path: callbacks", {a_message_is_answered_from_its_callback,
                                       a_callback_sends_the_next_and_the_next,
                                       {nested_progress_keeps_the_order, 4},
                                       nested_progress_takes_little_stack,
                                       {a_callback_ends_the_link, 4},
                                       nested_progress_ends_with_a_link_that_still_lacks_something});
}
