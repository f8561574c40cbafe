// SPDX-License-Identifier: BSD-3-Clause
#include <deque>

#include "common/rdma/rdma_planner.h"
#include "test/unit/check_main.h"
#include "test/unit/foresee.h"
#include "test/unit/planner_bench.h"

namespace fabric {
namespace {

using test::operation;
using test::RdmaDevice;
using Bench = test::PlannerBench;

std::byte memory[4096];

START_TEST(one_list_if_it_fits) {
  Bench bench({.link = Transport::kRoce, .max_sge = 3, .max_read_sge = 3});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  const LocalMemory piece{memory, 100, mr, IBV_ACCESS_LOCAL_WRITE};
  const RdmaPlan plan = bench.planner.plan(operation(RdmaKind::kRead, {piece, piece, piece}));
  ck_assert_uint_eq(plan.requests, 1);
  ck_assert_uint_eq(plan.entries, 1);
  ck_assert_uint_eq(plan.reads, 1);
  ck_assert_uint_eq(plan.registrations, 0);
}
END_TEST

START_TEST(iwarp_reads_have_one_piece_and_a_writable_sink) {
  Bench bench({.link = Transport::kIwarp, .max_sge = 3, .max_read_sge = 3});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  const LocalMemory piece{memory, 100, mr, IBV_ACCESS_LOCAL_WRITE};
  const RdmaPlan read = bench.planner.plan(operation(RdmaKind::kRead, {piece, piece, piece}));
  ck_assert_uint_eq(read.requests, 3);
  ck_assert_uint_eq(read.registrations, 3);
  ck_assert_uint_eq(bench.planner.plan(operation(RdmaKind::kWrite, {piece, piece, piece})).requests, 1);
  const LocalMemory good{memory, 100, mr, access_flags(MemoryRole::kReadSink, Transport::kIwarp)};
  ck_assert_uint_eq(bench.planner.plan(operation(RdmaKind::kRead, {good})).registrations, 0);
}
END_TEST

START_TEST(long_messages_are_cut) {
  Bench bench({.link = Transport::kRoce, .max_sge = 2, .max_message = 100});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  const auto write = operation(RdmaKind::kWrite, {{memory, 250, mr, IBV_ACCESS_LOCAL_WRITE}, {memory, 60, mr, 1}});
  ck_assert_uint_eq(bench.planner.sqes_needed(write), 4);
  ck_assert_uint_eq(bench.planner.sqes_needed(operation(RdmaKind::kWrite, {})), 1);
}
END_TEST

START_TEST(small_writes_need_no_registration) {
  Bench bench({.link = Transport::kRoce, .max_sge = 2, .max_inline = 64});
  auto write = operation(RdmaKind::kWrite, {{memory, 64, nullptr, 0}});
  ck_assert(bench.planner.plan(write).is_inline);
  ck_assert(bench.planner.post(write, bench.device) == RdmaPosted::kYes);
  ck_assert_uint_eq(bench.device.regions(), 0);
  write.local[0].length = 65;
  ck_assert_uint_eq(bench.planner.plan(write).registrations, 1);
}
END_TEST

START_TEST(iwarp_writes_are_read_back) {
  Bench bench({.link = Transport::kIwarp, .max_inline = 64, .outstanding_reads = 2});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  auto write = operation(RdmaKind::kWrite, {{memory, 8, nullptr, 0}});
  ck_assert_uint_eq(bench.planner.sqes_needed(write), 1);
  write.confirm = {memory + 100, 1, mr, 0};
  const RdmaPlan plan = bench.planner.plan(write);
  ck_assert(plan.is_inline && plan.confirms && plan.entries == 2 && plan.reads == 1);
  ck_assert(bench.planner.post(write, bench.device) == RdmaPosted::kYes);
  std::deque<RdmaDevice::Completion> done;
  bench.device.step(false, done);
  ck_assert_uint_eq(done.size(), 0);
  bench.device.step(false, done);
  ck_assert_uint_eq(done.size(), 1);
  bench.planner.complete(write);
  write.local[0].length = 0;
  ck_assert(!bench.planner.plan(write).confirms);
}
END_TEST

START_TEST(other_writes_are_read_back_if_that_is_asked_for) {
  Bench bench({.link = Transport::kInfiniBand, .max_inline = 64, .outstanding_reads = 2});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  auto write = operation(RdmaKind::kWrite, {{memory, 100, mr, IBV_ACCESS_LOCAL_WRITE}});
  write.confirm = {memory + 100, 1, mr, IBV_ACCESS_LOCAL_WRITE};
  ck_assert(!bench.planner.plan(write).confirms);
  write.reads_back = true;
  const RdmaPlan plan = bench.planner.plan(write);
  ck_assert(plan.confirms && plan.entries == 2 && plan.reads == 1);
  ck_assert(bench.planner.post(write, bench.device) == RdmaPosted::kYes);
  std::deque<RdmaDevice::Completion> done;
  bench.device.step(false, done);
  ck_assert_uint_eq(done.size(), 0);
  bench.device.step(false, done);
  ck_assert_uint_eq(done.size(), 1);
  bench.planner.complete(write);
  auto read = operation(RdmaKind::kRead, {{memory, 100, mr, IBV_ACCESS_LOCAL_WRITE}});
  read.confirm = write.confirm;
  read.reads_back = true;
  ck_assert(!bench.planner.plan(read).confirms);
}
END_TEST

void step_all(Bench& bench, std::deque<RdmaDevice::Completion>& done) {
  done.clear();
  while (bench.device.under_way() > 0) {
    bench.device.step(false, done);
  }
}

START_TEST(windows_are_bound_and_invalidated) {
  Bench bench({.link = Transport::kIwarp, .windows = true});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, kBindable);
  std::deque<RdmaDevice::Completion> done;
  for (int round = 0; round < 3; ++round) {  // the same window
    const std::uint64_t before = bench.device.posted;
    auto read = operation(RdmaKind::kRead, {{memory, 64, mr, kBindable}});
    read.last_id = 7;
    ck_assert_uint_eq(bench.planner.sqes_needed(read), 3);
    ck_assert(bench.planner.post(read, bench.device) == RdmaPosted::kYes);
    ck_assert_uint_eq(bench.device.posted - before, 2);  // what is to come has room already
    ck_assert_uint_eq(bench.credits.size_left(), 13);
    step_all(bench, done);
    ck_assert_uint_eq(done.size(), 1);
    ck_assert_uint_eq(bench.device.windows(), 1);
    ck_assert(bench.planner.proceed(read, bench.device) == RdmaNext::kMore);
    ck_assert_uint_eq(bench.planner.reads_in_flight(), 0);
    ck_assert_uint_eq(bench.device.posted - before, 3);
    step_all(bench, done);
    ck_assert(done.size() == 1 && done[0].id == 7);
    ck_assert_uint_eq(bench.device.windows(), 0);
    ck_assert(bench.planner.proceed(read, bench.device) == RdmaNext::kDone);
    bench.planner.complete(read);
    ck_assert(bench.pool.is_whole() && bench.credits.is_full());
  }
  test::check_text(bench.device.problem, "");
}
END_TEST

START_TEST(several_pieces_have_a_window_each) {
  Bench bench({.link = Transport::kIwarp, .outstanding_reads = 8, .windows = true});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, kBindable);
  constexpr unsigned kAny = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* any = bench.device.add_region(memory + 200, 50, kAny);
  auto read = operation(RdmaKind::kRead, {{memory, 64, mr, kBindable},
                                          {memory + 200, 50, any, kAny},
                                          {memory + 300, 0, mr, kBindable},
                                          {memory + 400, 30, mr, kBindable}});
  const RdmaPlan plan = bench.planner.plan(read);
  ck_assert(plan.windows == 2 && plan.registrations == 0 && plan.requests == 3 && plan.entries == 7);
  ck_assert(bench.planner.post(read, bench.device) == RdmaPosted::kYes);
  std::deque<RdmaDevice::Completion> done;
  step_all(bench, done);
  ck_assert_uint_eq(bench.device.windows(), 2);
  ck_assert(bench.planner.proceed(read, bench.device) == RdmaNext::kMore);
  step_all(bench, done);
  ck_assert_uint_eq(done.size(), 1);
  bench.planner.complete(read);
  ck_assert_uint_eq(bench.device.windows(), 0);
  test::check_text(bench.device.problem, "");
}
END_TEST

START_TEST(a_window_that_may_be_bound_is_not_used_again) {
  Bench bench({.link = Transport::kIwarp, .windows = true});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, kBindable);
  std::deque<RdmaDevice::Completion> done;
  auto first = operation(RdmaKind::kRead, {{memory, 64, mr, kBindable}});
  ck_assert(bench.planner.post(first, bench.device) == RdmaPosted::kYes);
  bench.device.step(false, done);  // bound
  bench.device.step(true, done);   // but not read
  bench.planner.error(first);
  ck_assert_uint_eq(bench.device.windows(), 0);
  ck_assert(bench.pool.is_whole() && bench.credits.is_full());
  bench.device.repair();
  auto refused = operation(RdmaKind::kRead, {{memory, 64, mr, kBindable}});
  ck_assert(bench.planner.post(refused, bench.device) == RdmaPosted::kYes);
  step_all(bench, done);
  bench.device.refuse_after = bench.device.posted;
  ck_assert(bench.planner.proceed(refused, bench.device) == RdmaNext::kRefused);
  bench.planner.error(refused);
  ck_assert(bench.pool.is_whole() && bench.credits.is_full());
  test::check_text(bench.device.problem, "");
}
END_TEST

START_TEST(registrations_do_where_windows_do_not_fit) {
  Bench small({.link = Transport::kIwarp, .windows = true}, 2);
  ibv_mr* mr = small.device.add_region(memory, sizeof memory, kBindable);
  const auto read = operation(RdmaKind::kRead, {{memory, 64, mr, kBindable}});
  const RdmaPlan plan = small.planner.plan(read);
  ck_assert(plan.windows == 0 && plan.registrations == 1 && plan.entries == 1);

  Bench none({.link = Transport::kIwarp, .windows = true}, 16, {}, {4, 1000, 1});
  ibv_mr* other = none.device.add_region(memory, sizeof memory, kBindable);
  auto first = operation(RdmaKind::kRead, {{memory, 64, other, kBindable}});
  auto second = first;
  ck_assert(none.planner.post(first, none.device) == RdmaPosted::kYes);
  ck_assert(none.planner.post(second, none.device) == RdmaPosted::kNoRoom);  // one read at a time
  none.planner.set_outstanding_reads(2);
  ck_assert(none.planner.post(second, none.device) == RdmaPosted::kYes);
  ck_assert(first.windows == 1 && second.windows == 0);  // the pool makes one
  std::deque<RdmaDevice::Completion> done;
  step_all(none, done);
  ck_assert_uint_eq(done.size(), 2);
  ck_assert(none.planner.proceed(second, none.device) == RdmaNext::kDone);
  none.planner.complete(second);
  ck_assert(none.planner.proceed(first, none.device) == RdmaNext::kMore);
  step_all(none, done);
  none.planner.complete(first);
  test::check_text(none.device.problem, "");
  ck_assert(none.pool.is_whole() && none.credits.is_full());
}
END_TEST

START_TEST(windows_are_for_sinks_of_iwarp_that_allow_them) {
  Bench iwarp({.link = Transport::kIwarp, .windows = true, .force_mr = true});
  ibv_mr* mr = iwarp.device.add_region(memory, sizeof memory, kBindable);
  const LocalMemory bindable{memory, 64, mr, kBindable};
  ck_assert_uint_eq(iwarp.planner.plan(operation(RdmaKind::kRead, {bindable})).windows, 1);
  ck_assert_uint_eq(iwarp.planner.plan(operation(RdmaKind::kWrite, {bindable})).windows, 0);
  ck_assert_uint_eq(iwarp.planner.plan(operation(RdmaKind::kRead, {{memory, 64, mr, IBV_ACCESS_LOCAL_WRITE}})).windows,
                    0);
  Bench roce({.link = Transport::kRoce, .windows = true, .force_mr = true});
  const RdmaPlan plan = roce.planner.plan(operation(RdmaKind::kRead, {bindable}));
  ck_assert(plan.windows == 0 && plan.registrations == 1);
}
END_TEST

START_TEST(what_is_refused_at_once_leaves_nothing) {
  Bench bench({.link = Transport::kRoce, .max_message = 16, .outstanding_reads = 16});
  auto write = operation(RdmaKind::kWrite, {{memory, 64, nullptr, 0}});
  bench.device.refuse_after = 0;
  ck_assert(bench.planner.post(write, bench.device) == RdmaPosted::kRefused);
  ck_assert(bench.pool.is_whole() && bench.credits.is_full() && bench.device.regions() == 0);
}
END_TEST

START_TEST(what_is_refused_half_way_keeps_its_memory) {
  for (const std::uint64_t taken : {1, 8, 9}) {  // a batch is of 8
    Bench bench({.link = Transport::kRoce, .max_message = 16, .outstanding_reads = 16});
    auto write = operation(RdmaKind::kWrite, {{memory, 160, nullptr, 0}});
    bench.device.refuse_after = taken;
    ck_assert(bench.planner.post(write, bench.device) == RdmaPosted::kBroken);
    ck_assert_uint_eq(bench.device.under_way(), taken);
    ck_assert_uint_eq(bench.device.regions(), 1);
    std::deque<RdmaDevice::Completion> done;
    while (bench.device.under_way() > 0) {
      bench.device.step(true, done);
    }
    for (const RdmaDevice::Completion& one : done) {
      ck_assert(!one.good && one.id == write.part_id);
    }
    bench.planner.error(write);
    ck_assert(bench.pool.is_whole() && bench.credits.is_full() && bench.device.regions() == 0);
    test::check_text(bench.device.problem, "");
  }
}
END_TEST

START_TEST(none_left_is_an_answer) {
  Bench bench({.link = Transport::kRoce, .outstanding_reads = 4, .force_mr = true}, 16, {}, {1, 100});
  auto first = operation(RdmaKind::kRead, {{memory, 64, nullptr, 0}});
  auto second = first;
  ck_assert(bench.planner.post(first, bench.device) == RdmaPosted::kYes);
  ck_assert(bench.planner.post(second, bench.device) == RdmaPosted::kNoRegion);
  ck_assert_uint_eq(bench.credits.size_left(), 15);
  bench.planner.complete(first);
  bench.device.registers = false;
  ck_assert(bench.planner.post(second, bench.device) == RdmaPosted::kNoRegion);
  ck_assert(bench.pool.is_whole() && bench.credits.is_full());
}
END_TEST

START_TEST(reads_wait_for_each_other) {
  Bench bench({.link = Transport::kRoce, .max_message = 64, .outstanding_reads = 2});
  ibv_mr* mr = bench.device.add_region(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  auto large = operation(RdmaKind::kRead, {{memory, 200, mr, IBV_ACCESS_LOCAL_WRITE}});
  auto small = operation(RdmaKind::kRead, {{memory, 8, mr, IBV_ACCESS_LOCAL_WRITE}});
  ck_assert(bench.planner.post(large, bench.device) == RdmaPosted::kYes);  // alone it must go
  ck_assert(bench.planner.post(small, bench.device) == RdmaPosted::kNoRoom);
  bench.planner.complete(large);
  ck_assert(bench.planner.post(small, bench.device) == RdmaPosted::kYes);
  auto huge = operation(RdmaKind::kRead, {{memory, 2000, mr, IBV_ACCESS_LOCAL_WRITE}});
  ck_assert(bench.planner.post(huge, bench.device) == RdmaPosted::kTooLarge);
}
END_TEST

START_TEST(plans_are_explained) {
  Bench bench({.link = Transport::kIwarp, .max_sge = 2, .outstanding_reads = 4});
  test::check_text(
      bench.planner.explain(operation(RdmaKind::kRead, {{memory, 100, nullptr, 0}, {memory, 50, nullptr, 0}})),
      "read of 150 bytes in 2 pieces: 2 requests, 2 entries (2 bytes) of the send queue, 2 of 4 "
      "outstanding reads, 2 temporary registrations");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("rdma_planner",
                         {one_list_if_it_fits, iwarp_reads_have_one_piece_and_a_writable_sink, long_messages_are_cut,
                          small_writes_need_no_registration, iwarp_writes_are_read_back,
                          other_writes_are_read_back_if_that_is_asked_for, windows_are_bound_and_invalidated,
                          several_pieces_have_a_window_each, a_window_that_may_be_bound_is_not_used_again,
                          registrations_do_where_windows_do_not_fit, windows_are_for_sinks_of_iwarp_that_allow_them,
                          what_is_refused_at_once_leaves_nothing, what_is_refused_half_way_keeps_its_memory,
                          none_left_is_an_answer, reads_wait_for_each_other, plans_are_explained});
}
