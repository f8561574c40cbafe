// SPDX-License-Identifier: BSD-3-Clause
//
// Operations of one request that nothing follows, which nearly all are: in one piece with their caller.
#pragma once

#include <array>
#include <cerrno>

#include "common/rdma/rdma_planner.h"

namespace fabric {

[[nodiscard]] constexpr bool is_atomic(RdmaKind kind) noexcept {
  return kind == RdmaKind::kFetchAdd || kind == RdmaKind::kCompareSwap;
}

[[nodiscard]] inline ibv_wr_opcode opcode_of(RdmaKind kind) noexcept {
  static constexpr std::array kOpcodes{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                       IBV_WR_ATOMIC_CMP_AND_SWP};
  static_assert(static_cast<std::size_t>(RdmaKind::kCompareSwap) + 1 == kOpcodes.size());
  return kOpcodes[static_cast<std::size_t>(kind)];
}

/// Where a request of the operation goes. `offset`: of its first byte.
inline void aim(ibv_send_wr& request, const RdmaOperation& operation, std::uint64_t offset) noexcept {
  if (is_atomic(operation.kind)) {
    request.wr.atomic.remote_addr = operation.remote_address;
    request.wr.atomic.rkey = operation.rkey;
    request.wr.atomic.compare_add = operation.kind == RdmaKind::kFetchAdd ? operation.operand : operation.compare;
    request.wr.atomic.swap = operation.operand;
  } else {
    request.wr.rdma.remote_addr = operation.remote_address + offset;
    request.wr.rdma.rkey = operation.rkey;
  }
}

inline bool RdmaPlanner::confirms(const RdmaOperation& operation, std::uint64_t length) const noexcept {
  return (limits_.link == Transport::kIwarp || operation.reads_back) && operation.kind == RdmaKind::kWrite &&
         operation.confirm.mr != nullptr && length > 0;
}

inline bool RdmaPlanner::is_simple(const RdmaOperation& operation) const noexcept {
  const LocalMemory& piece = operation.local[0];
  if (operation.pieces != 1 || piece.length == 0 || piece.length > limits_.max_message || limits_.force_mr ||
      confirms(operation, piece.length)) {
    return false;
  }
  const bool is_write = operation.kind == RdmaKind::kWrite;
  const unsigned needed = is_write ? write_access_ : read_access_;
  return (is_write && piece.length <= limits_.max_inline) || (piece.mr != nullptr && (piece.access & needed) == needed);
}

template <class Verbs>
RdmaPosted RdmaPlanner::post_simple(RdmaOperation& operation, Verbs& verbs) noexcept {
  const LocalMemory& piece = operation.local[0];
  const bool is_write = operation.kind == RdmaKind::kWrite;
  const bool is_inline = is_write && piece.length <= limits_.max_inline;
  const auto length = static_cast<std::uint32_t>(piece.length);
  const std::uint64_t bytes = is_inline ? credits_.space().needed_inline(length) : credits_.space().needed(1);
  const bool reads_fit = is_write || reads_in_flight_ == 0 || reads_in_flight_ < limits_.outstanding_reads;
  if (!reads_fit || !credits_.has_room(bytes)) {
    return bytes > credits_.space().size() ? RdmaPosted::kTooLarge : RdmaPosted::kNoRoom;
  }
  operation.carried = credits_.take_signaled(bytes, &operation);
  operation.carried_later = 0;
  operation.reads = is_write ? 0 : 1;
  operation.windows = 0;
  operation.temporary[0] = nullptr;
  reads_in_flight_ += operation.reads;

  ibv_sge sge{reinterpret_cast<std::uintptr_t>(piece.address), length, is_inline ? 0 : piece.mr->lkey};
  ibv_send_wr request;  // what verbs does not look at is not cleared: most of it
  request.wr_id = operation.last_id;
  request.next = nullptr;
  request.imm_data = 0;  // drivers copy it
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = opcode_of(operation.kind);
  request.send_flags = is_inline ? IBV_SEND_SIGNALED | IBV_SEND_INLINE : IBV_SEND_SIGNALED;
  aim(request, operation, 0);
  ibv_send_wr* refused = nullptr;
  if (verbs.post(&request, &refused) == 0) [[likely]] {
    return RdmaPosted::kYes;
  }
  const int error_number = errno;
  complete(operation);
  errno = error_number;
  return RdmaPosted::kRefused;
}

template <class Verbs>
[[gnu::always_inline]] inline RdmaPosted RdmaPlanner::post_quickly(RdmaOperation& operation, Verbs& verbs) noexcept {
  return is_simple(operation) ? post_simple(operation, verbs) : post_any(operation, verbs);
}

}  // namespace fabric
