// SPDX-License-Identifier: BSD-3-Clause
//
// Random operations of the RDMA planner on the memory of another process, over the first device that there is:
//   test_planner_storm OPERATIONS [SEED]
// The bytes must be those of a model, the requests as many as the plan says, and afterwards nothing may be left: room, reads,
// registrations. Device and connection may fail meanwhile; FAULTS=yes in the environment says that they must.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/rdma/rdma_planner.h"
#include "common/rdma/verbs_rdma.h"
#include "test/softhca/rdma_target.h"
#include "test/unit/foresee.h"

namespace fabric {
namespace {

using test::must;
using test::RdmaTarget;
using test::TargetConnection;
using test::TargetMemory;

constexpr std::size_t kRemoteBytes = 65536;
constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kSlots = 24;  // most operations at a time
constexpr std::uint32_t kDepth = 16;

/// libibverbs, counted.
class CountedVerbs final : public RdmaVerbs {
 public:
  explicit CountedVerbs(ibv_pd* pd) noexcept : verbs_(pd) {}
  std::uint64_t requests = 0;
  std::int64_t regions = 0;  ///< now
  ibv_qp* queue_pair = nullptr;

  int post(ibv_send_wr* first, ibv_send_wr** refused) noexcept override {
    for (const ibv_send_wr* one = first; one != nullptr; one = one->next) {
      ++requests;
    }
    return verbs_.on(queue_pair).post(first, refused);
  }
  ibv_mr* register_memory(void* address, std::size_t length, unsigned access, RegionUse use) noexcept override {
    ibv_mr* mr = verbs_.register_memory(address, length, access, use);
    regions += mr != nullptr ? 1 : 0;
    return mr;
  }
  void deregister_memory(ibv_mr* mr, RegionUse use) noexcept override {
    --regions;
    verbs_.deregister_memory(mr, use);
  }
  ibv_mw* make_window() noexcept override { return verbs_.make_window(); }
  void destroy_window(ibv_mw* window) noexcept override { verbs_.destroy_window(window); }

 private:
  VerbsRdma verbs_;
};

/// What the storm was, for the reader.
struct Tally {
  std::uint64_t operations = 0, requests = 0, several = 0, registrations = 0, windows = 0, inlined = 0, no_room = 0,
                no_region = 0, failed = 0, connections = 0, comparisons = 0;
};
Tally tally;

[[noreturn]] void wrong(const std::string& text) {
  std::fprintf(stderr, "FAILED after %llu operations: %s\n", static_cast<unsigned long long>(tally.operations),
               text.c_str());
  std::exit(1);
}
void require(bool good, const char* text) {
  if (!good) {
    wrong(text);
  }
}

/// A planner with its queue and pool on a connection, which is made anew when it has failed.
class Storm {
 public:
  Storm(RdmaTarget& target, const RdmaLimits& limits, const DeviceCosts& costs, unsigned seed)
      : target_(target),
        random_(seed),
        credits_(QueueSpace::for_operations(kDepth, costs, limits.max_sge, limits.max_inline)),
        connection_(std::make_unique<TargetConnection>(target.port())),
        pd_(ibv_alloc_pd(connection_->device())),
        cq_(ibv_create_cq(connection_->device(), static_cast<int>(credits_.space().entries()), nullptr, nullptr, 0)),
        limits_(limits),
        verbs_(pd_),
        pool_(verbs_, {6, 2 * kSlotBytes}),
        planner_(set_link(), credits_, pool_),
        model_(target.memory().begin(), target.memory().end()),
        doubtful_(kRemoteBytes, false),
        local_(kSlots * kSlotBytes) {
    must(pd_ != nullptr && cq_ != nullptr, "ibv_alloc_pd and ibv_create_cq");
    register_slots();
    connect();
  }

  [[nodiscard]] Transport link() const noexcept { return limits_.link; }

  /// Starts `operations` and waits for them.
  void run(std::uint64_t operations) {
    for (std::uint64_t started = 0; started < operations;) {
      if (broken_ && under_way_ == 0) {
        reconnect();
      }
      if (!broken_ && up_to(3) != 0) {
        started += start() ? 1 : 0;
      }
      if (broken_ || up_to(15) == 0) {  // seldom: so that room and regions run out
        poll();
      }
      if (under_way_ == 0 && up_to(3) == 0) {
        compare();
      }
    }
    drain();
    compare();
    require(pool_.is_whole(), "the pool is not whole");
    require(credits_.is_full() && credits_.unsignaled() == 0, "room of the send queue is lost");
    require(planner_.reads_in_flight() == 0, "reads are lost");
    require(verbs_.regions == 0, "temporary registrations are left");
    tally.requests += verbs_.requests;
  }

  /// Everything goes back to the device, which says no (EBUSY) if something is left.
  void close() {
    connection_->disconnect();
    connection_.reset();
    pool_.destroy_windows();
    for (Slot& slot : slots_) {
      require(slot.mr == nullptr || ibv_dereg_mr(slot.mr) == 0, "ibv_dereg_mr");
    }
    require(ibv_dereg_mr(confirm_.mr) == 0 && ibv_destroy_cq(cq_) == 0 && ibv_dealloc_pd(pd_) == 0,
            "something is left on the device");
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
  std::byte* memory_of(std::size_t slot) { return local_.data() + slot * kSlotBytes; }
  Slot& slot_of(std::uint64_t id) { return slots_[id / 2]; }

  const RdmaLimits& set_link() {
    limits_.link = test::link_of_first_port(connection_->device());
    return limits_;
  }

  ibv_mr* register_for(void* address, std::size_t bytes, unsigned access) {
    ibv_mr* mr = nullptr;
    for (int i = 0; i < 100 && mr == nullptr; ++i) {  // a rule may refuse some
      mr = ibv_reg_mr(pd_, address, bytes, static_cast<int>(access));
    }
    must(mr != nullptr, "ibv_reg_mr");
    return mr;
  }

  /// Some memory is registered for everything, some as InfiniBand's read sinks are, some for reading, some not at all.
  void register_slots() {
    const std::array<unsigned, 3> kinds = {access_flags(MemoryRole::kReadSink | MemoryRole::kWriteSink, limits_.link),
                                           kBindable, 0};
    for (std::size_t i = 0; i < kSlots; ++i) {
      if (i % 4 < kinds.size()) {
        slots_[i].access = kinds[i % 4];
        slots_[i].mr = register_for(memory_of(i), kSlotBytes, kinds[i % 4]);
      }
    }
    const unsigned access = access_flags(MemoryRole::kReadSink, limits_.link);
    confirm_ = {&confirm_byte_, 1, register_for(&confirm_byte_, 1, access), access};
  }

  void connect() {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = static_cast<std::uint32_t>(credits_.space().entries());
    attributes.cap.max_recv_wr = 1;
    attributes.cap.max_send_sge = limits_.max_sge;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = limits_.max_inline;
    remote_ = connection_->connect(pd_, attributes, limits_.outstanding_reads);
    verbs_.queue_pair = connection_->queue_pair();
    ++tally.connections;
  }
  void reconnect() {
    ibv_wc completion{};
    require(ibv_poll_cq(cq_, 1, &completion) == 0, "a completion too many");
    compare();  // what failed may have been done, or not; nothing else
    connection_->disconnect();
    connection_ = std::make_unique<TargetConnection>(target_.port());
    connect();
    broken_ = false;
  }

  bool start() {
    const std::size_t index = up_to(kSlots - 1);
    Slot& slot = slots_[index];
    if (slot.busy) {
      return false;
    }
    make(slot, index);
    const RdmaPlan plan = planner_.plan(slot.operation);
    require(planner_.sqes_needed(slot.operation) == plan.entries, "two counts of one plan");
    const std::uint64_t before = verbs_.requests;
    const bool promised = credits_.size_left() >= plan.entries;
    const RdmaPosted posted = planner_.post(slot.operation, verbs_);
    const std::uint64_t requests = verbs_.requests - before;
    require(posted != RdmaPosted::kRefused, "verbs refused a request: the queue was overrun, or it was malformed");
    require(posted != RdmaPosted::kTooLarge, "an operation larger than the queue");
    require(requests == (posted == RdmaPosted::kYes ? plan.entries - plan.windows : 0),
            "not as many requests as planned");
    if (posted == RdmaPosted::kNoRoom) {
      require(!promised || plan.reads > 0, "no room although size_left() said so");
      ++tally.no_room;
    }
    if (posted == RdmaPosted::kNoRegion) {
      require(plan.registrations + plan.windows > 0, "no region although none was planned");
      ++tally.no_region;
    }
    if (posted != RdmaPosted::kYes) {
      return false;
    }
    require(plan.reads == 0 || planner_.reads_in_flight() <= std::max(plan.reads, limits_.outstanding_reads),
            "too many reads");
    ++tally.operations;
    tally.several += plan.requests > 1 ? 1 : 0;
    tally.registrations += plan.registrations;
    tally.windows += plan.windows;
    tally.inlined += plan.is_inline ? 1 : 0;
    slot.busy = true;
    ++under_way_;
    foresee(slot);
    return true;
  }

  void make(Slot& slot, std::size_t index) {
    RdmaOperation& operation = slot.operation;
    operation = {};
    operation.kind = static_cast<RdmaKind>(up_to(limits_.link == Transport::kIwarp ? 1 : 3));
    const bool atomic = operation.kind == RdmaKind::kFetchAdd || operation.kind == RdmaKind::kCompareSwap;
    std::byte* at = memory_of(index);
    operation.pieces = static_cast<std::uint8_t>(atomic ? 1 : 1 + up_to(3));
    for (std::size_t i = 0; i < operation.pieces; ++i) {
      constexpr std::uint32_t kLengths[] = {0, 16, 80, kSlotBytes / 4};
      const std::uint64_t length = atomic ? 8 : up_to(kLengths[up_to(3)]);
      operation.local[i] = {at, length, slot.mr, slot.access};
      std::generate_n(at, length, [this] { return static_cast<std::byte>(random_()); });
      at += length;
    }
    operation.remote_address = remote_.address + 8 * up_to((kRemoteBytes - kSlotBytes) / 8);
    operation.remote_address += atomic ? 0 : up_to(7);
    operation.rkey = remote_.rkey;
    operation.confirm = confirm_;
    operation.operand = random_();
    std::memcpy(&operation.compare, model_.data() + offset(operation), 8);
    operation.compare += up_to(1);
    operation.last_id = 2 * index;
    operation.part_id = 2 * index + 1;
  }

  [[nodiscard]] std::size_t offset(const RdmaOperation& operation) const {
    return operation.remote_address - remote_.address;
  }

  void foresee(Slot& slot) { test::foresee(slot.operation, model_.data() + offset(slot.operation), slot.expected); }

  void poll() {
    std::array<ibv_wc, 8> completions;
    const int count = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
    require(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      take(completions[static_cast<std::size_t>(i)]);
    }
  }

  void take(const ibv_wc& completion) {
    Slot& slot = slot_of(completion.wr_id);
    const bool good = completion.status == IBV_WC_SUCCESS;
    require(slot.busy, "a completion of nothing");
    if (!good) {
      require(may_fail_, "a request failed, and no fault was asked for");
      if (completion.status != IBV_WC_WR_FLUSH_ERR && completion.status != IBV_WC_REM_OP_ERR) {
        wrong(std::string("a request failed otherwise than it was told to: ") + ibv_wc_status_str(completion.status) +
              ", " + planner_.explain(slot.operation));
      }
      broken_ = true;
    }
    if (completion.wr_id % 2 != 0) {
      require(!good, "a part has a completion");
      return;  // the last request's follows
    }
    tally.failed += good ? 0 : 1;
    if (good) {
      check_arrived(slot);
      const std::uint64_t before = verbs_.requests;
      const RdmaNext next = broken_ ? RdmaNext::kDone : planner_.proceed(slot.operation, verbs_);
      require(next == RdmaNext::kDone || next == RdmaNext::kMore, "verbs refused what follows a read");
      if (next == RdmaNext::kMore) {
        require(verbs_.requests - before == slot.operation.windows, "not as many windows invalidated as bound");
        return;
      }
      broken_ ? planner_.error(slot.operation) : planner_.complete(slot.operation);
    } else {
      doubt(slot.operation);
      planner_.error(slot.operation);
    }
    slot.busy = false;
    --under_way_;
  }

  void check_arrived(const Slot& slot) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < slot.operation.pieces && !slot.expected.empty(); ++i) {
      const LocalMemory& piece = slot.operation.local[i];
      require(std::memcmp(piece.address, slot.expected.data() + at, piece.length) == 0, "wrong bytes have arrived");
      at += piece.length;
    }
  }

  void doubt(const RdmaOperation& operation) {
    if (operation.kind != RdmaKind::kRead) {
      const auto first = doubtful_.begin() + static_cast<std::ptrdiff_t>(offset(operation));
      std::fill_n(first, operation.length(), true);
    }
  }

  /// Nothing is under way: every byte is known, but those of operations that failed.
  void compare() {
    ++tally.comparisons;
    const std::span<std::byte> there = target_.memory();
    if (std::equal(there.begin(), there.end(), model_.begin())) {
      return;
    }
    for (std::size_t i = 0; i < kRemoteBytes; ++i) {
      require(there[i] == model_[i] || doubtful_[i], "wrong bytes at the target");
      model_[i] = there[i];
    }
    std::fill(doubtful_.begin(), doubtful_.end(), false);
  }

  void drain() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (under_way_ > 0) {
      poll();
      require(std::chrono::steady_clock::now() < end, "completions are missing");
    }
  }

  RdmaTarget& target_;
  std::mt19937_64 random_;
  TxCredits credits_;
  std::unique_ptr<TargetConnection> connection_;
  ibv_pd* pd_;
  ibv_cq* cq_;
  RdmaLimits limits_;
  CountedVerbs verbs_;
  MrPool pool_;
  RdmaPlanner planner_;
  TargetMemory remote_;
  std::vector<std::byte> model_;
  std::vector<bool> doubtful_;
  std::vector<std::byte> local_;
  Slot slots_[kSlots];
  std::byte confirm_byte_{};
  LocalMemory confirm_;
  std::size_t under_way_ = 0;
  bool broken_ = false;
  const bool may_fail_ = std::getenv("FAULTS") != nullptr;
};

/// The ways in which queues and limits differ. The link is the device's.
struct Setting {
  RdmaLimits limits;
  DeviceCosts costs;
};
const Setting kSettings[] = {
    {{.max_sge = 4, .max_read_sge = 4, .max_message = 1U << 30, .max_inline = 64, .outstanding_reads = 16}, {}},
    {{.max_sge = 2, .max_read_sge = 1, .max_message = 512, .max_inline = 0, .outstanding_reads = 4}, {{32, 16}, 32}},
    {{.max_sge = 3, .max_read_sge = 2, .max_message = 1000, .max_inline = 32, .outstanding_reads = 1}, {{16, 16}, 64}},
    {{.max_sge = 4, .max_read_sge = 4, .max_message = 4096, .outstanding_reads = 8, .force_mr = true}, {}},
    {{.max_sge = 4, .max_read_sge = 4, .max_message = 700, .outstanding_reads = 8, .windows = true}, {{16, 16}, 32}},
};

int run(std::uint64_t operations, unsigned seed) {
  RdmaTarget target(kRemoteBytes);
  Transport target_link = Transport::kRoce;
  for (const Setting& setting : kSettings) {
    Storm storm(target, setting.limits, setting.costs, seed++);
    target_link = storm.link();
    storm.run(operations / std::size(kSettings));
    storm.close();
  }
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%llu operations in %llu requests, %llu of them in several, %llu inline, %llu registrations, %llu windows, %llu without "
      "room, %llu without a region, %llu failed, %llu connections, %llu comparisons\n",
      number(tally.operations), number(tally.requests), number(tally.several), number(tally.inlined),
      number(tally.registrations), number(tally.windows), number(tally.no_room), number(tally.no_region),
      number(tally.failed), number(tally.connections), number(tally.comparisons));
  require(tally.several > 0 && tally.inlined > 0 && tally.registrations > 0 && tally.no_room > 0 && tally.no_region > 0,
          "something that was to be tried did not happen");
  if (std::getenv("FAULTS") != nullptr) {
    require(tally.failed > 0 && tally.connections > std::size(kSettings), "no fault happened");
  }
  require(tally.windows > 0 || target_link != Transport::kIwarp, "no window was bound");
  require(target.stop(), "the target ended badly");
  return 0;
}

}  // namespace
}  // namespace fabric

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: test_planner_storm OPERATIONS [SEED]\n", stderr);
    return 2;
  }
  return fabric::run(std::strtoull(argv[1], nullptr, 10), argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1);
}
