// SPDX-License-Identifier: BSD-3-Clause
//
// One process reads, writes and changes another's memory: in pieces, inline, up to the last byte, with an order that programs
// rely on, and by atomic operations of several processes at a time. (What is refused: test_softhca_between_errors.cc.)
#include <memory>

#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

uint64_t value_at(const World& w, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, w.memory.data() + offset, sizeof value);
  return value;
}

// --- Reads and writes

constexpr uint32_t kSizes[] = {1, 8, 192, 193, 256, 257, 4096, 12000};
constexpr uint32_t kMostInline = 200;

START_TEST(writes_and_reads_of_all_sizes) {
  between(
      {},
      [](const Side& side) {
        for (const uint32_t length : kSizes)
          for (uint32_t pieces = 1; pieces <= std::min(length, 4U); ++pieces)
            for (const bool is_inline : {false, true}) {
              if (is_inline && length > kMostInline) continue;
              for (uint32_t i = 0; i < length; ++i)
                side.w.memory[i] = static_cast<uint8_t>(i * 7 + i / 256 + pieces + (is_inline ? 1 : 0));
              const std::vector<uint8_t> sent(side.w.memory.begin(), side.w.memory.begin() + length);
              std::vector<ibv_sge> list = side.cut(length, pieces);
              // Up to the last byte.
              Facts at = side.other;
              at.address += side.w.memory.size() - length;
              ibv_send_wr wr = Side::request(IBV_WR_RDMA_WRITE, list[0], at);
              wr.num_sge = static_cast<int>(pieces);
              wr.wr_id = 1;
              if (is_inline) {
                wr.send_flags = IBV_SEND_INLINE;
                for (ibv_sge& piece : list) piece.lkey = 0;  // it needs none
              }
              ck_assert_int_eq(World::post(side.qp, wr), 0);
              // What was posted inline is free at once.
              if (is_inline) std::fill_n(side.w.memory.begin(), length, uint8_t{0});
              side.w.expect(1, IBV_WC_SUCCESS);
              std::fill_n(side.w.memory.begin(), length, uint8_t{0x55});
              // Into as many pieces; iWARP has one in a READ.
              list = side.cut(length, side.iwarp ? 1 : pieces);
              ibv_send_wr read = Side::request(IBV_WR_RDMA_READ, list[0], at);
              read.num_sge = static_cast<int>(list.size());
              side.expect(read);
              ck_assert(std::equal(sent.begin(), sent.end(), side.w.memory.begin()));
              std::fill_n(side.w.memory.begin(), length, uint8_t{0x55});
              ck_assert(side.untouched(0, side.w.memory.size(), 0x55));
            }
        side.line.done();
      },
      [](const Side& side) {
        side.line.await();
        ck_assert(side.untouched(0, side.w.memory.size() - 12000, 0xaa));
        ck_assert(side.nothing_received());
      });
}
END_TEST

/// A READ is not inline, and iWARP has one piece in it: both are refused when they are posted.
START_TEST(reads_that_cannot_be_posted) {
  between(
      {},
      [](const Side& side) {
        std::vector<ibv_sge> list = side.cut(64, 2);
        ibv_send_wr wr = side.request(IBV_WR_RDMA_READ, list[0]);
        wr.send_flags = IBV_SEND_INLINE;
        ck_assert_int_eq(World::post(side.qp, wr), EINVAL);
        wr.send_flags = 0;
        wr.num_sge = 2;
        if (side.iwarp)
          ck_assert_int_eq(World::post(side.qp, wr), EINVAL);
        else
          side.expect(wr);
        wr.num_sge = 5;  // it was made for four
        ck_assert_int_eq(World::post(side.qp, wr), EINVAL);
        // Nothing has come of them.
        wr.num_sge = 1;
        side.expect(wr);
        ck_assert(side.w.is_empty());
      },
      [](const Side&) {});
}
END_TEST

/// Without a byte no key and no address is looked at (C9-88).
START_TEST(nothing_may_be_written_and_read_anywhere) {
  between(
      {},
      [](const Side& side) {
        ibv_sge list = side.w.sge(0, 0);
        for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
          ibv_send_wr wr = Side::request(opcode, list, {});
          wr.num_sge = 0;
          side.expect(wr);
          wr.num_sge = 1;
          side.expect(wr);
        }
      },
      [](const Side&) {});
}
END_TEST

/// A program may watch the last byte of a write: what lies before it has come then.
START_TEST(the_last_byte_of_a_write_comes_last) {
  constexpr uint32_t kRounds = 150;
  constexpr uint32_t kMost = 8192;
  between(
      {},
      [](const Side& side) {
        greet(side);
        for (uint32_t i = 1; i <= kRounds; ++i) {
          std::fill_n(side.w.memory.begin(), kMost, static_cast<uint8_t>(i));
          ibv_sge list = side.w.sge(0, 1 + i * 977 % kMost);
          side.expect(side.request(IBV_WR_RDMA_WRITE, list));
          side.line.await();
        }
      },
      [](const Side& side) {
        be_greeted(side);
        for (uint32_t i = 1; i <= kRounds; ++i) {
          const uint32_t length = 1 + i * 977 % kMost;
          const std::atomic_ref<uint8_t> last(side.w.memory[length - 1]);
          while (last.load(std::memory_order_acquire) != static_cast<uint8_t>(i)) sched_yield();
          ck_assert_msg(side.untouched(0, length, static_cast<uint8_t>(i)), "write %u of %u bytes", i, length);
          side.line.done();
        }
      });
}
END_TEST

// --- Atomics

START_TEST(atomics_answer_with_what_was_there) {
  constexpr uint64_t kRounds = 200;  // at the end that is the value too
  if (!have_device()) return;
  between(
      {},
      [](const Side& side) {
        side.line.await();
        const auto answer = [&] { return value_at(side.w, 0); };
        ibv_sge list[2] = {side.w.sge(0, 4), side.w.sge(4, 4)};  // in two pieces
        ibv_send_wr wr = side.request(IBV_WR_ATOMIC_FETCH_AND_ADD, list[0]);
        wr.num_sge = 2;
        for (uint64_t i = 0; i < kRounds; ++i) {
          wr.wr.atomic.compare_add = i % 2 == 0 ? 3 : UINT64_MAX;  // - 1
          side.expect(wr);
          ck_assert_uint_eq(answer(), i % 2 == 0 ? i : i + 2);
        }
        wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic.compare_add = 5;
        wr.wr.atomic.swap = 6;
        side.expect(wr);
        ck_assert_uint_eq(answer(), kRounds);
        wr.wr.atomic.compare_add = kRounds;
        side.expect(wr);
        ck_assert_uint_eq(answer(), kRounds);
        wr.wr.atomic.swap = 7;
        side.expect(wr);
        ck_assert_uint_eq(answer(), 6);
        list[1].length = 5;
        ck_assert_int_eq(World::post(side.qp, wr), EINVAL);  // nine bytes
        side.line.done();
      },
      [](const Side& side) {
        std::fill_n(side.w.memory.begin(), 8, uint8_t{0});
        side.line.done();
        side.line.await();
        ck_assert_uint_eq(value_at(side.w, 0), 6);
        ck_assert(side.untouched(8, side.w.memory.size(), 0xaa));
      });
}
END_TEST

/// iWARP has none: they are refused when they are posted, and the connection goes on.
START_TEST(iwarp_has_no_atomics) {
  if (have_device()) return;
  between(
      {},
      [](const Side& side) {
        ibv_sge list = side.w.sge(0, 8);
        for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP})
          ck_assert_int_eq(World::post(side.qp, side.request(opcode, list)), EINVAL);
        side.expect(side.request(IBV_WR_RDMA_WRITE, list));
      },
      [](const Side&) {});
}
END_TEST

constexpr int kProcesses = 4;  // that add to the memory of one more
constexpr uint64_t kAdds = 100;
constexpr uint64_t kSwaps = 20;
constexpr size_t kCounter = 8;  // where swaps count

// Adds one so often; the sum of what was there before.
uint64_t add(const World& w, ibv_qp* qp, const Facts& at) {
  uint64_t sum = 0;
  uint64_t last = 0;
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr wr = Side::request(IBV_WR_ATOMIC_FETCH_AND_ADD, list, at);
  for (uint64_t i = 0; i < kAdds; ++i) {
    ck_assert_int_eq(World::post(qp, wr), 0);
    w.expect(0, IBV_WC_SUCCESS);
    const uint64_t before = value_at(w, 0);
    ck_assert(i == 0 || before > last);
    last = before;
    sum += before;
  }
  return sum;
}
// Adds one so often, as a program does that has only swaps. Nobody else's is lost by it.
void count_by_swaps(const World& w, ibv_qp* qp, const Facts& at) {
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr wr = Side::request(IBV_WR_ATOMIC_CMP_AND_SWP, list, at);
  wr.wr.atomic.remote_addr += kCounter;
  uint64_t seen = 0;
  for (uint64_t done = 0; done < kSwaps;) {
    wr.wr.atomic.compare_add = seen;
    wr.wr.atomic.swap = seen + 1;
    ck_assert_int_eq(World::post(qp, wr), 0);
    w.expect(0, IBV_WC_SUCCESS);
    const uint64_t before = value_at(w, 0);
    if (before == seen) ++done;
    seen = before == seen ? seen + 1 : before;
  }
}

/// Each sum is seen by one, and none is lost: of several processes, and of the owner by queue pairs of its own.
START_TEST(atomics_of_several_processes_take_turns) {
  if (!have_device()) return;
  std::vector<int> lines;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    int line[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
    children.push_back(fork());
    ck_assert_int_ge(children.back(), 0);
    if (children.back() == 0) {
      const Side side({}, line[1], -1, getppid());
      const auto at = side.line.take<Facts>();
      side.line.give(add(side.w, side.qp, at));
      count_by_swaps(side.w, side.qp, at);
      side.line.done();
      _exit(0);
    }
    close(line[1]);
    lines.push_back(line[0]);
  }
  // Each side has a region of its own, of the same memory.
  alignas(8) static uint64_t words[2];
  std::vector<Facts> places;
  const auto region_of = [](const World& w) {
    const ibv_mr* mr = ibv_reg_mr(w.pd, words, sizeof words, kAllAccess);
    ck_assert_ptr_nonnull(mr);
    return Facts{0, 0, mr->rkey, reinterpret_cast<uint64_t>(words), 0};
  };
  std::vector<std::unique_ptr<Side>> sides;
  for (const int line : lines) {
    sides.push_back(std::make_unique<Side>(Kind{}, line, -1, 0));
    places.push_back(region_of(sides.back()->w));
  }
  const World own;
  const auto pair = own.pair();
  for (size_t i = 0; i < sides.size(); ++i) sides[i]->line.give(places[i]);
  const Facts here = region_of(own);
  uint64_t sum = add(own, pair[0], here);
  count_by_swaps(own, pair[0], here);
  for (const auto& side : sides) {
    sum += side->line.take<uint64_t>();
    side->line.await();
  }
  for (const pid_t child : children) ck_assert_int_eq(end_of(child), 0);
  constexpr uint64_t kAll = kAdds * (kProcesses + 1);
  ck_assert_uint_eq(words[0], kAll);
  ck_assert_uint_eq(sum, kAll * (kAll - 1) / 2);
  ck_assert_uint_eq(words[1], kSwaps * (kProcesses + 1));
}
END_TEST

/// A fence keeps what is behind it until what was read and changed before is there.
START_TEST(a_fence_waits_for_an_atomic) {
  if (!have_device()) return;
  constexpr uint64_t kRounds = 20;
  between(
      {},
      [](const Side& side) {
        side.line.await();
        for (uint64_t i = 0; i < kRounds; ++i) {
          ibv_sge list = side.w.sge(0, 8);
          ibv_send_wr add = side.request(IBV_WR_ATOMIC_FETCH_AND_ADD, list);
          add.wr_id = 1;
          add.wr.atomic.compare_add = 1;
          Facts at = side.other;
          at.address += 8;
          ibv_send_wr tell = Side::request(IBV_WR_RDMA_WRITE, list, at);  // what the atomic has answered
          tell.wr_id = 2;
          tell.send_flags = IBV_SEND_FENCE;
          add.next = &tell;
          ck_assert_int_eq(World::post(side.qp, add), 0);
          side.w.expect(1, IBV_WC_SUCCESS);
          side.w.expect(2, IBV_WC_SUCCESS);
          side.line.done();
          side.line.await();
        }
      },
      [](const Side& side) {
        std::fill_n(side.w.memory.begin(), 8, uint8_t{0});
        side.line.done();
        for (uint64_t i = 0; i < kRounds; ++i) {
          side.line.await();
          ck_assert_uint_eq(value_at(side.w, 0), i + 1);
          ck_assert_uint_eq(value_at(side.w, 8), i);
          side.line.done();
        }
      });
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite(
      "softhca_between_memory",
      {writes_and_reads_of_all_sizes, reads_that_cannot_be_posted, nothing_may_be_written_and_read_anywhere,
       the_last_byte_of_a_write_comes_last, atomics_answer_with_what_was_there, iwarp_has_no_atomics,
       atomics_of_several_processes_take_turns, a_fence_waits_for_an_atomic});
}
