// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/rdma/rdma_planner.h"
#include "test/unit/check_main.h"
#include "test/unit/foresee.h"
#include "test/unit/rdma_device.h"

namespace fabric {
namespace {

using test::RdmaDevice;

/// A planner with its queue and pool, and a device below.
struct Bench {
  explicit Bench(const RdmaLimits& limits, std::uint32_t depth = 16, const DeviceCosts& costs = {},
                 const MrPoolHints& hints = {})
      : credits(
            QueueSpace::for_operations(depth, costs, std::max(limits.max_sge, limits.max_read_sge), limits.max_inline)),
        device(limits.link, credits.space().entries(), limits.max_sge, limits.max_read_sge, limits.max_message, 65536),
        pool(device, hints),
        planner(limits, credits, pool) {}

  TxCredits credits;
  RdmaDevice device;
  MrPool pool;
  RdmaPlanner planner;
};

RdmaOperation operation(RdmaKind kind, std::initializer_list<LocalMemory> local) {
  RdmaOperation result;
  result.kind = kind;
  for (const LocalMemory& piece : local) {
    result.local[result.pieces++] = piece;
  }
  result.remote_address = RdmaDevice::kRemoteBase;
  result.rkey = RdmaDevice::kRemoteKey;
  result.last_id = 1;
  result.part_id = 2;
  return result;
}

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

/// Random operations against a copy of the peer's memory.
class Storm {
 public:
  static constexpr std::size_t kLocalEach = 1024;
  static constexpr std::size_t kOperations = 24;  // most at a time

  Storm(const RdmaLimits& limits, const DeviceCosts& costs, unsigned seed)
      : random_(seed),
        bench_(limits, 12, costs, {6, 2000}),
        model_(bench_.device.remote),
        local_(kOperations * kLocalEach) {
    for (std::size_t i = 0; i < kOperations; ++i) {
      // Some memory is registered for everything, some for reading only, some not at all.
      const unsigned access = i % 3 == 0   ? access_flags(MemoryRole::kReadSink | MemoryRole::kWriteSink, limits.link)
                              : i % 2 == 0 ? static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
                                           : 0;
      slots_[i].access = access;
      slots_[i].mr = i % 3 == 2 ? nullptr : bench_.device.add_region(memory_of(i), kLocalEach, access);
    }
    confirm_ = {&confirm_byte_, 1,
                bench_.device.add_region(&confirm_byte_, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), 0};
    permanent_ = bench_.device.regions();
  }

  std::string run(unsigned operations, unsigned one_fault_in) {
    for (unsigned started = 0; started < operations && bench_.device.problem.empty();) {
      if (up_to(1) == 0 && bench_.device.under_way() > 0) {
        step(one_fault_in != 0 && up_to(one_fault_in) == 0);
      } else {
        started += start() ? 1 : 0;
      }
      bench_.device.registers = up_to(50) != 0;
    }
    drain();
    if (!bench_.device.problem.empty()) {
      return bench_.device.problem;
    }
    if (!problem_.empty()) {
      return problem_;
    }
    if (model_ != bench_.device.remote) {
      return "wrong bytes at the peer";
    }
    if (!bench_.pool.is_whole() || bench_.device.regions() != permanent_) {
      return "registrations are left";
    }
    if (bench_.device.windows() > 0) {
      return "windows are left open";
    }
    if (!bench_.credits.is_full() || bench_.planner.reads_in_flight() != 0) {
      return "room is lost";
    }
    return faults_ > 0 || one_fault_in == 0 ? "" : "no fault happened";
  }

 private:
  struct Slot {
    bool busy = false;
    ibv_mr* mr = nullptr;
    unsigned access = 0;
    RdmaOperation operation;
    std::vector<std::byte> expected;  ///< of a read or atomic
  };

  std::uint32_t up_to(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % (most + 1)); }
  std::byte* memory_of(std::size_t slot) { return local_.data() + slot * kLocalEach; }

  void complain(const char* text) {
    if (problem_.empty()) {
      problem_ = text;
    }
  }

  bool start() {
    const std::size_t index = up_to(kOperations - 1);
    Slot& slot = slots_[index];
    if (slot.busy || bench_.device.broken()) {
      return false;
    }
    make(slot, index);
    const RdmaPlan plan = bench_.planner.plan(slot.operation);
    const std::uint64_t before = bench_.device.posted;
    const bool promised = bench_.credits.size_left() >= plan.entries;
    const RdmaPosted posted = bench_.planner.post(slot.operation, bench_.device);
    if (posted != RdmaPosted::kYes) {
      if (posted == RdmaPosted::kRefused || bench_.device.posted != before) {
        complain("posted something and said no");
      }
      if (posted == RdmaPosted::kNoRoom && promised && plan.reads == 0) {
        complain("no room although size_left() said so");
      }
      return false;
    }
    if (bench_.device.posted - before + plan.windows != plan.entries) {
      complain("the count of entries was wrong");
    }
    if (plan.reads > 0 &&
        bench_.planner.reads_in_flight() > std::max(plan.reads, bench_.planner.limits().outstanding_reads)) {
      complain("too many outstanding reads");
    }
    slot.busy = true;
    foresee(slot);
    return true;
  }

  void make(Slot& slot, std::size_t index) {
    RdmaOperation& operation = slot.operation;
    operation = {};
    const bool atomics = bench_.planner.limits().link != Transport::kIwarp;
    operation.kind = static_cast<RdmaKind>(up_to(atomics ? 3 : 1));
    const bool atomic = operation.kind == RdmaKind::kFetchAdd || operation.kind == RdmaKind::kCompareSwap;
    std::byte* at = memory_of(index);
    operation.pieces = static_cast<std::uint8_t>(atomic ? 1 : 1 + up_to(3));
    for (std::size_t i = 0; i < operation.pieces; ++i) {
      const std::uint64_t length = atomic ? 8 : up_to(up_to(3) == 0 ? 250 : 40);
      operation.local[i] = {at, length, slot.mr, slot.access};
      for (std::uint64_t k = 0; k < length; ++k) {
        at[k] = static_cast<std::byte>(random_());
      }
      at += length;
    }
    operation.remote_address = RdmaDevice::kRemoteBase + 8 * up_to(500);
    operation.rkey = RdmaDevice::kRemoteKey;
    operation.confirm = confirm_;
    operation.operand = random_();
    std::memcpy(&operation.compare, model_.data() + offset(operation), 8);
    operation.compare += up_to(1);
    operation.last_id = 2 * index;
    operation.part_id = 2 * index + 1;
  }

  static std::size_t offset(const RdmaOperation& operation) {
    return operation.remote_address - RdmaDevice::kRemoteBase;
  }

  void foresee(Slot& slot) { test::foresee(slot.operation, model_.data() + offset(slot.operation), slot.expected); }

  void step(bool fails) {
    bench_.device.step(fails, completions_);
    faults_ += fails ? 1 : 0;
    while (!completions_.empty()) {
      const auto [id, good] = completions_.front();
      completions_.pop_front();
      Slot& slot = slots_[id / 2];
      if (id % 2 != 0) {
        if (good) {
          complain("a part completed");
        }
        continue;  // the last request follows
      }
      if (good) {
        check_arrived(slot);
        if (const RdmaNext next = bench_.planner.proceed(slot.operation, bench_.device); next != RdmaNext::kDone) {
          if (next != RdmaNext::kMore) {
            complain("what follows a read was refused");
          }
          continue;
        }
        bench_.planner.complete(slot.operation);
      } else {
        bench_.planner.error(slot.operation);
      }
      slot.busy = false;
    }
    if (bench_.device.broken() && bench_.device.under_way() == 0) {
      bench_.device.repair();
      model_ = bench_.device.remote;  // what had failed may have been done, or not
    }
  }

  void check_arrived(const Slot& slot) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < slot.operation.pieces && !slot.expected.empty(); ++i) {
      const LocalMemory& piece = slot.operation.local[i];
      if (std::memcmp(piece.address, slot.expected.data() + at, piece.length) != 0) {
        complain("wrong bytes arrived");
      }
      at += piece.length;
    }
  }

  void drain() {
    while (bench_.device.under_way() > 0) {
      step(false);
    }
  }

  std::mt19937 random_;
  Bench bench_;
  std::vector<std::byte> model_;
  std::vector<std::byte> local_;
  Slot slots_[kOperations];
  std::deque<RdmaDevice::Completion> completions_;
  std::byte confirm_byte_{};
  LocalMemory confirm_;
  std::size_t permanent_ = 0;
  unsigned faults_ = 0;
  std::string problem_;
};

constexpr unsigned kStorm = 200000;  // operations per transport

void storm(const RdmaLimits& limits) {
  for (unsigned part = 0; part < 8; ++part) {
    const DeviceCosts costs = part % 2 == 0 ? DeviceCosts{} : DeviceCosts{{32, 16}, 32};
    RdmaLimits these = limits;
    these.force_mr = part % 4 == 3;
    these.windows = part % 4 == 2;
    Storm one(these, costs, 100 + part);
    test::check_text(one.run(kStorm / 8, part < 4 ? 0 : 500), "");
  }
}

START_TEST(random_operations_infiniband) {
  storm({Transport::kInfiniBand, 4, 4, 4096, 64, 16, false, false});
}
END_TEST
START_TEST(random_operations_roce) {
  storm({Transport::kRoce, 2, 1, 128, 32, 4, false, false});
}
END_TEST
START_TEST(random_operations_iwarp) {
  storm({Transport::kIwarp, 3, 3, 200, 0, 3, false, false});
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "rdma_planner",
      {one_list_if_it_fits, iwarp_reads_have_one_piece_and_a_writable_sink, long_messages_are_cut,
       small_writes_need_no_registration, iwarp_writes_are_read_back, other_writes_are_read_back_if_that_is_asked_for,
       windows_are_bound_and_invalidated, several_pieces_have_a_window_each,
       a_window_that_may_be_bound_is_not_used_again, registrations_do_where_windows_do_not_fit,
       windows_are_for_sinks_of_iwarp_that_allow_them, what_is_refused_at_once_leaves_nothing,
       what_is_refused_half_way_keeps_its_memory, none_left_is_an_answer, reads_wait_for_each_other,
       plans_are_explained, random_operations_infiniband, random_operations_roce, random_operations_iwarp});
}
