// SPDX-License-Identifier: BSD-3-Clause
//
// Turns reads, writes and atomics into work requests. Whether an operation goes as one scatter-gather list or as
// several requests, inline, or with memory registered just for it, depends on the transport, the limits of the device
// and how the memory is registered already; none of it is the caller's business, who only asks how much of the send
// queue an operation takes, posts it, and says what became of it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>

#include "common/accounting/queue_credits.h"
#include "common/rdma/access_flags.h"
#include "common/rdma/mr_pool.h"

namespace fabric {

enum class RdmaKind : std::uint8_t { kWrite, kRead, kFetchAdd, kCompareSwap };

/// A piece of the local memory of an operation.
struct LocalMemory {
  void* address = nullptr;
  std::uint64_t length = 0;
  ibv_mr* mr = nullptr;  ///< null if it is not registered
  unsigned access = 0;   ///< what `mr` was registered for
};

/// Most pieces of local memory of an operation.
inline constexpr std::size_t kMaxLocalPieces = 8;

/// An operation, in storage of the caller's, who leaves it alone between post() and its end.
struct RdmaOperation {
  RdmaKind kind = RdmaKind::kWrite;
  std::uint8_t pieces = 0;
  std::array<LocalMemory, kMaxLocalPieces> local{};
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t operand = 0;  ///< of atomics: what is added or swapped in
  std::uint64_t compare = 0;  ///< of a compare and swap
  /// Of writes on iWARP, whose completion only says that the data are on their way: memory for a byte that is read back
  /// from where they go, so that the operation ends when they are there. Without it (no mr) they are not waited for.
  LocalMemory confirm{};
  /// Does the same elsewhere. The completion says that the data are with the peer's adapter, from which they go to memory
  /// before all that it takes later; but what another adapter of the peer's takes later may be in memory before them.
  bool reads_back = false;

  /// wr_id of the last request, and of the others: those complete only when they fail.
  std::uint64_t last_id = 0;
  std::uint64_t part_id = 0;

  // The planner's
  std::uint64_t carried = 0;        ///< of the send queue, given back by the completion
  std::uint64_t carried_later = 0;  ///< kept for what follows it, and given back by the next one
  std::uint32_t reads = 0;
  std::uint32_t windows = 0;  ///< bound for it
  std::array<MrPool::Slot*, kMaxLocalPieces> temporary{};

  /// As made, but for `confirm`, and for what nobody looks at before it is set: most of the bytes.
  void renew() noexcept {
    // Whoever adds a member is told by the test of this.
    kind = RdmaKind::kWrite;
    pieces = 0;
    local[0] = {};
    remote_address = operand = compare = last_id = part_id = carried = carried_later = 0;
    rkey = reads = windows = 0;
    reads_back = false;
  }

  [[nodiscard]] std::uint64_t length() const noexcept {
    std::uint64_t sum = pieces > 0 ? local[0].length : 0;
    for (std::size_t i = 1; i < pieces; ++i) {
      sum += local[i].length;
    }
    return sum;
  }
};

/// What a queue pair and its device can do.
struct RdmaLimits {
  Transport link = Transport::kRoce;
  std::uint32_t max_sge = 1;       ///< pieces of memory of a write
  std::uint32_t max_read_sge = 1;  ///< of a read; 1 on iWARP, whatever this says
  std::uint64_t max_message = 1U << 30;
  std::uint32_t max_inline = 0;
  std::uint32_t outstanding_reads = 1;  ///< reads and atomics, as negotiated with the peer
  /// On iWARP, where a read's sink is named to the peer, memory that is registered for too little, but lets windows be
  /// bound, gets a window instead of another registration. Elsewhere a window's key is of no use to its own side.
  bool windows = false;
  bool force_mr = false;  ///< registers all local memory anew, to exercise that path anywhere
};

/// How an operation will go.
struct RdmaPlan {
  std::uint32_t requests = 0;       ///< reads, writes and atomics, the one that confirms writes included
  std::uint32_t entries = 0;        ///< of the send queue: `requests`, and those that bind and invalidate windows
  std::uint64_t bytes = 0;          ///< of the send queue
  std::uint32_t reads = 0;          ///< how many of `requests` count as outstanding reads
  std::uint32_t registrations = 0;  ///< memory regions registered for it
  std::uint32_t windows = 0;        ///< memory windows bound for it, and invalidated when its data have come
  std::uint64_t later_bytes = 0;    ///< of `bytes`: for that
  bool is_inline = false;
  bool confirms = false;  ///< the last request reads back a byte
};

enum class RdmaPosted {
  kYes,
  kNoRoom,    ///< the send queue or the outstanding reads: after a completion there is
  kNoRegion,  ///< no memory can be registered for it now: after a completion there may be
  kTooLarge,  ///< it needs more than the whole send queue
  kRefused,   ///< verbs refused; the queue pair is of no more use, errno says why
  kBroken,    ///< the same, but the device has some of its requests: leave it alone until the queue pair is gone, then
              ///< error() it
};

/// How an operation goes on when its last request is done.
enum class RdmaNext {
  kDone,     ///< that was all: complete() it
  kMore,     ///< its last request, by the same id, is another one now
  kRefused,  ///< as in RdmaPosted; its data have come: error() it
  kBroken,   ///< as in RdmaPosted
};

/// For one queue pair. Not thread-safe: belongs to whoever holds the queue pair. `credits` are those of its send queue,
/// which others may use too; `pool` is shared by the queue pairs of a device.
class RdmaPlanner {
 public:
  RdmaPlanner(const RdmaLimits& limits, TxCredits& credits, MrPool& pool) noexcept;

  [[nodiscard]] const RdmaLimits& limits() const noexcept { return limits_; }
  void set_outstanding_reads(std::uint32_t count) noexcept { limits_.outstanding_reads = count; }

  [[nodiscard]] RdmaPlan plan(const RdmaOperation& operation) const noexcept;
  /// Entries of the send queue that the operation takes.
  [[nodiscard]] std::uint32_t sqes_needed(const RdmaOperation& operation) const noexcept {
    return plan(operation).entries;
  }

  /// Posts all of it, or nothing (unless verbs refuses half-way: kBroken).
  [[nodiscard]] RdmaPosted post(RdmaOperation& operation, RdmaVerbs& verbs) noexcept;
  /// The same, in one piece with its caller where it is one request, and with a class of verbs that is known (single_requests.h).
  template <class Verbs>
  [[nodiscard]] RdmaPosted post_quickly(RdmaOperation& operation, Verbs& verbs) noexcept;

  /// The last request is done well: invalidates the windows that were bound for it. That is not posted with the rest, since it would
  /// have to wait for the data there, and everything behind it in the send queue too. There is room for it.
  [[nodiscard]] RdmaNext proceed(RdmaOperation& operation, RdmaVerbs& verbs) noexcept;

  /// All of it is done: memory, room and reads of the operation are free again.
  void complete(RdmaOperation& operation) noexcept;
  /// The last request has failed, or what would follow is not to be posted any more: the same, and windows that may be bound are not
  /// used again. A failure of a request before (part_id) is followed by that of the last, and needs no call.
  void error(RdmaOperation& operation) noexcept;

  [[nodiscard]] std::uint32_t reads_in_flight() const noexcept { return reads_in_flight_; }

  /// The plan in words: "read of 4096 bytes: 2 requests, 2 entries of the send queue, ...".
  [[nodiscard]] std::string explain(const RdmaOperation& operation) const;

 private:
  enum class KeyFrom { kOwn, kRegistration, kWindow };
  [[nodiscard]] RdmaPlan plan(const RdmaOperation& operation, bool may_bind) const noexcept;
  [[nodiscard]] KeyFrom key_from(const RdmaOperation& operation, const LocalMemory& piece,
                                 bool may_bind) const noexcept;
  [[nodiscard]] std::uint32_t pieces_per_request(RdmaKind kind) const noexcept;
  [[nodiscard]] bool confirms(const RdmaOperation& operation, std::uint64_t length) const noexcept;
  [[nodiscard]] bool goes_inline(const RdmaOperation& operation) const noexcept;
  [[nodiscard]] bool take_keys(RdmaOperation& operation, const RdmaPlan& plan) noexcept;
  void give_back_room(RdmaOperation& operation) noexcept;
  void give_back_keys(RdmaOperation& operation) noexcept;

  /// One piece of memory, copied by the device or registered for it, in one request that nothing follows: nearly all are.
  [[nodiscard]] bool is_simple(const RdmaOperation& operation) const noexcept;
  template <class Verbs>
  [[nodiscard]] RdmaPosted post_simple(RdmaOperation& operation, Verbs& verbs) noexcept;
  [[nodiscard]] RdmaPosted post_any(RdmaOperation& operation, RdmaVerbs& verbs) noexcept;

  RdmaLimits limits_;
  const unsigned write_access_;  ///< that memory must have
  const unsigned read_access_;
  TxCredits& credits_;
  MrPool& pool_;
  std::uint32_t reads_in_flight_ = 0;
};

/// The part that the local memory of an operation plays.
[[nodiscard]] constexpr MemoryRole local_role(RdmaKind kind) noexcept {
  return kind == RdmaKind::kWrite ? MemoryRole::kWriteSource : MemoryRole::kReadSink;
}

}  // namespace fabric
