// SPDX-License-Identifier: BSD-3-Clause
//
// Hundreds of thousands of random RDMA operations by the planner, with and without faults, against a copy of the peer's memory.
#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "common/rdma/rdma_planner.h"
#include "test/unit/check_main.h"
#include "test/unit/foresee.h"
#include "test/unit/planner_bench.h"

namespace fabric {
namespace {

using test::operation;
using test::RdmaDevice;
using Bench = test::PlannerBench;

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
  return test::run_suite("planner_operations",
                         {random_operations_infiniband, random_operations_roce, random_operations_iwarp});
}
