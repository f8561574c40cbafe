// SPDX-License-Identifier: BSD-3-Clause
#include "common/rdma/rdma_planner.h"

#include <algorithm>
#include <cerrno>

#include "common/rdma/rdma_splitter.h"
#include "common/rdma/single_requests.h"

namespace fabric {
namespace {

const char* name_of(RdmaKind kind) noexcept {
  switch (kind) {
    case RdmaKind::kWrite:
      return "write";
    case RdmaKind::kRead:
      return "read";
    case RdmaKind::kFetchAdd:
      return "fetch and add";
    case RdmaKind::kCompareSwap:
      break;
  }
  return "compare and swap";
}

/// What the memory must be registered for: to play this part in any order is no need.
unsigned lasting_access(MemoryRole role, Transport link) noexcept {
  static_assert((access_flags(MemoryRole::kWriteSource, Transport::kInfiniBand) & IBV_ACCESS_RELAXED_ORDERING) != 0);
  static_assert((access_flags(MemoryRole::kReadSink, Transport::kInfiniBand) & IBV_ACCESS_RELAXED_ORDERING) != 0);
  return access_flags(role, link) & ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING);
}

/// Collects work requests and posts them a few at a time: an operation may have more than a stack should hold.
class Batch {
 public:
  using Chunk = RdmaSplitter::Chunk;

  explicit Batch(RdmaVerbs& verbs) noexcept : verbs_(verbs) {}

  /// A cleared request at the end of the list, and memory for its pieces; null if verbs has refused.
  [[nodiscard]] ibv_send_wr* add(const Chunk* chunk) noexcept {
    if (count_ == requests_.size() && !flush()) {
      return nullptr;
    }
    ibv_send_wr& request = requests_[count_];
    request = {};
    if (chunk != nullptr) {
      sges_[count_] = chunk->sges;
      request.sg_list = sges_[count_].data();
      request.num_sge = static_cast<int>(chunk->count);
    }
    if (count_ > 0) {
      requests_[count_ - 1].next = &request;
    }
    ++count_;
    return &request;
  }
  [[nodiscard]] ibv_sge& sge(std::size_t index) noexcept { return sges_[count_ - 1][index]; }

  [[nodiscard]] bool flush() noexcept {
    if (count_ == 0) {
      return true;
    }
    ibv_send_wr* refused = requests_.data();
    const bool posted = verbs_.post(requests_.data(), &refused) == 0;
    some_posted_ = some_posted_ || posted || refused != requests_.data();
    count_ = 0;
    return posted;
  }
  /// The device has at least one of them.
  [[nodiscard]] bool some_posted() const noexcept { return some_posted_; }

 private:
  RdmaVerbs& verbs_;
  std::array<ibv_send_wr, 8> requests_;
  std::array<std::array<ibv_sge, kMaxRequestSges>, 8> sges_;
  std::size_t count_ = 0;
  bool some_posted_ = false;
};

/// The window that stands for a piece, if it has one.
ibv_mw* window_of(const RdmaOperation& operation, std::size_t piece) noexcept {
  const MrPool::Slot* slot = operation.temporary[piece];
  return slot != nullptr && slot->mr == nullptr ? slot->window : nullptr;
}

/// The local key of a piece.
std::uint32_t lkey_of(const RdmaOperation& operation, std::size_t piece) noexcept {
  if (const ibv_mw* window = window_of(operation, piece); window != nullptr) {
    return window->rkey;
  }
  const MrPool::Slot* slot = operation.temporary[piece];
  return slot != nullptr ? slot->mr->lkey : operation.local[piece].mr->lkey;
}

bool add_binds(Batch& batch, const RdmaOperation& operation, unsigned access) noexcept {
  for (std::size_t i = 0; i < operation.pieces; ++i) {
    ibv_mw* window = window_of(operation, i);
    if (window == nullptr) {
      continue;
    }
    ibv_send_wr* request = batch.add(nullptr);
    if (request == nullptr) {
      return false;
    }
    window->rkey = ibv_inc_rkey(window->rkey);
    request->wr_id = operation.part_id;
    request->opcode = IBV_WR_BIND_MW;
    request->bind_mw.mw = window;
    request->bind_mw.rkey = window->rkey;
    request->bind_mw.bind_info.mr = operation.local[i].mr;
    request->bind_mw.bind_info.addr = reinterpret_cast<std::uintptr_t>(operation.local[i].address);
    request->bind_mw.bind_info.length = operation.local[i].length;
    request->bind_mw.bind_info.mw_access_flags = access & ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING);
  }
  return true;
}

bool add_requests(Batch& batch, const RdmaOperation& operation, const RdmaPlan& plan, RdmaSplitter splitter) noexcept {
  for (RdmaSplitter::Chunk chunk; splitter.next(chunk);) {
    ibv_send_wr* request = batch.add(&chunk);
    if (request == nullptr) {
      return false;
    }
    for (std::size_t i = 0; i < chunk.count && !plan.is_inline; ++i) {
      batch.sge(i).lkey = lkey_of(operation, chunk.piece_of[i]);
    }
    const bool last = splitter.at_end() && !plan.confirms;
    request->wr_id = last ? operation.last_id : operation.part_id;
    request->opcode = opcode_of(operation.kind);
    request->send_flags = (last ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0) |
                          (plan.is_inline ? static_cast<unsigned>(IBV_SEND_INLINE) : 0);
    aim(*request, operation, chunk.offset);
  }
  return true;
}

bool add_confirmation(Batch& batch, const RdmaOperation& operation) noexcept {
  RdmaSplitter::Chunk byte;
  byte.count = 1;
  byte.sges[0] = {reinterpret_cast<std::uintptr_t>(operation.confirm.address), 1, operation.confirm.mr->lkey};
  ibv_send_wr* request = batch.add(&byte);
  if (request == nullptr) {
    return false;
  }
  request->wr_id = operation.last_id;
  request->opcode = IBV_WR_RDMA_READ;
  request->send_flags = IBV_SEND_SIGNALED;
  request->wr.rdma.remote_addr = operation.remote_address;
  request->wr.rdma.rkey = operation.rkey;
  return true;
}

bool add_invalidates(Batch& batch, const RdmaOperation& operation) noexcept {
  std::uint32_t windows = operation.windows;
  for (std::size_t i = 0; i < operation.pieces; ++i) {
    const ibv_mw* window = window_of(operation, i);
    if (window == nullptr) {
      continue;
    }
    ibv_send_wr* request = batch.add(nullptr);
    if (request == nullptr) {
      return false;
    }
    --windows;
    request->wr_id = windows == 0 ? operation.last_id : operation.part_id;
    request->opcode = IBV_WR_LOCAL_INV;
    request->invalidate_rkey = window->rkey;
    request->send_flags = windows == 0 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0;
  }
  return true;
}

}  // namespace

RdmaPlanner::RdmaPlanner(const RdmaLimits& limits, TxCredits& credits, MrPool& pool) noexcept
    : limits_(limits),
      write_access_(lasting_access(MemoryRole::kWriteSource, limits.link)),
      read_access_(lasting_access(MemoryRole::kReadSink, limits.link)),
      credits_(credits),
      pool_(pool) {}

std::uint32_t RdmaPlanner::pieces_per_request(RdmaKind kind) const noexcept {
  if (kind == RdmaKind::kWrite) {
    return std::max(1U, limits_.max_sge);
  }
  return limits_.link == Transport::kIwarp ? 1 : std::max(1U, limits_.max_read_sge);
}

bool RdmaPlanner::goes_inline(const RdmaOperation& operation) const noexcept {
  return operation.kind == RdmaKind::kWrite && !limits_.force_mr &&
         operation.pieces <= pieces_per_request(RdmaKind::kWrite) && operation.pieces <= kMaxRequestSges &&
         operation.length() <= limits_.max_inline;
}

RdmaPlanner::KeyFrom RdmaPlanner::key_from(const RdmaOperation& operation, const LocalMemory& piece,
                                           bool may_bind) const noexcept {
  if (piece.length == 0) {
    return KeyFrom::kOwn;
  }
  const bool good = piece.mr != nullptr && suffices(piece.access, local_role(operation.kind), limits_.link);
  if (good && !limits_.force_mr) {
    return KeyFrom::kOwn;
  }
  const bool bindable = piece.mr != nullptr && (piece.access & kBindable) == kBindable &&
                        local_role(operation.kind) == MemoryRole::kReadSink && limits_.link == Transport::kIwarp;
  return may_bind && limits_.windows && bindable ? KeyFrom::kWindow : KeyFrom::kRegistration;
}

/// Windows need more of the send queue than registrations. Where they would need more than there is, registrations have to do.
RdmaPlan RdmaPlanner::plan(const RdmaOperation& operation) const noexcept {
  const RdmaPlan best = plan(operation, true);
  return best.windows > 0 && best.bytes > credits_.space().size() ? plan(operation, false) : best;
}

RdmaPlan RdmaPlanner::plan(const RdmaOperation& operation, bool may_bind) const noexcept {
  const QueueSpace& space = credits_.space();
  RdmaPlan plan;
  plan.is_inline = goes_inline(operation);
  if (plan.is_inline) {
    plan.requests = 1;
    plan.bytes = space.needed_inline(static_cast<std::uint32_t>(operation.length()));
  }
  RdmaSplitter splitter(operation, pieces_per_request(operation.kind), limits_.max_message);
  for (RdmaSplitter::Chunk chunk; !plan.is_inline && splitter.next(chunk);) {
    ++plan.requests;
    plan.bytes += space.needed(chunk.count);
  }
  for (std::size_t i = 0; i < operation.pieces && !plan.is_inline; ++i) {
    const KeyFrom from = key_from(operation, operation.local[i], may_bind);
    plan.registrations += from == KeyFrom::kRegistration ? 1 : 0;
    plan.windows += from == KeyFrom::kWindow ? 1 : 0;
  }
  plan.reads = operation.kind == RdmaKind::kWrite ? 0 : plan.requests;
  plan.confirms = confirms(operation, operation.length());
  if (plan.confirms) {
    ++plan.requests;
    plan.reads = 1;
    plan.bytes += space.needed(1);
  }
  plan.entries = plan.requests + 2 * plan.windows;
  plan.later_bytes = plan.windows * space.needed(0);
  plan.bytes += plan.windows * space.needed(1) + plan.later_bytes;
  return plan;
}

bool RdmaPlanner::take_keys(RdmaOperation& operation, const RdmaPlan& plan) noexcept {
  operation.temporary.fill(nullptr);
  for (std::size_t i = 0; i < operation.pieces && !plan.is_inline; ++i) {
    const LocalMemory& piece = operation.local[i];
    const KeyFrom from = key_from(operation, piece, plan.windows > 0);
    if (from == KeyFrom::kOwn) {
      continue;
    }
    operation.temporary[i] = from == KeyFrom::kWindow
                                 ? pool_.take_window()
                                 : pool_.register_memory(piece.address, piece.length,
                                                         access_flags(local_role(operation.kind), limits_.link));
    if (operation.temporary[i] == nullptr) {
      give_back_keys(operation);
      return false;
    }
  }
  return true;
}

void RdmaPlanner::give_back_keys(RdmaOperation& operation) noexcept {
  for (std::size_t i = 0; i < operation.pieces; ++i) {
    MrPool::Slot*& slot = operation.temporary[i];
    if (slot != nullptr) {
      pool_.give_back(slot);
      slot = nullptr;
    }
  }
}

RdmaPosted RdmaPlanner::post(RdmaOperation& operation, RdmaVerbs& verbs) noexcept {
  return post_quickly(operation, verbs);
}

RdmaPosted RdmaPlanner::post_any(RdmaOperation& operation, RdmaVerbs& verbs) noexcept {
  RdmaPlan plan = this->plan(operation);
  if (plan.bytes > credits_.space().size()) {
    return RdmaPosted::kTooLarge;
  }
  // More reads than the peer allows wait in the device, and would hold up what comes behind them; but an operation that
  // is more than that by itself must go at some time.
  const bool reads_fit =
      plan.reads == 0 || reads_in_flight_ == 0 || reads_in_flight_ + plan.reads <= limits_.outstanding_reads;
  if (!reads_fit || !credits_.has_room(plan.bytes)) {
    return RdmaPosted::kNoRoom;
  }
  if (!take_keys(operation, plan)) {
    if (plan.windows == 0) {
      return RdmaPosted::kNoRegion;
    }
    plan = this->plan(operation, false);  // a device may have few windows
    if (!take_keys(operation, plan)) {
      return RdmaPosted::kNoRegion;
    }
  }
  operation.carried = credits_.take_signaled(plan.bytes - plan.later_bytes, &operation);
  operation.carried_later =
      plan.later_bytes > 0 ? credits_.take_signaled(plan.later_bytes, &operation.carried_later) : 0;
  operation.reads = plan.reads;
  operation.windows = plan.windows;
  reads_in_flight_ += plan.reads;

  Batch batch(verbs);
  const std::uint32_t max_sges = plan.is_inline ? kMaxRequestSges : pieces_per_request(operation.kind);
  const bool posted = add_binds(batch, operation, access_flags(local_role(operation.kind), limits_.link)) &&
                      add_requests(batch, operation, plan, RdmaSplitter(operation, max_sges, limits_.max_message)) &&
                      (!plan.confirms || add_confirmation(batch, operation)) && batch.flush();
  if (!posted && batch.some_posted()) {
    return RdmaPosted::kBroken;  // its memory may still be written
  }
  if (!posted) {
    const int error_number = errno;
    complete(operation);
    errno = error_number;
    return RdmaPosted::kRefused;
  }
  return RdmaPosted::kYes;
}

RdmaNext RdmaPlanner::proceed(RdmaOperation& operation, RdmaVerbs& verbs) noexcept {
  if (operation.carried_later == 0 || operation.carried == 0) {  // none, or that was it
    return RdmaNext::kDone;
  }
  give_back_room(operation);
  Batch batch(verbs);
  if (add_invalidates(batch, operation) && batch.flush()) {
    return RdmaNext::kMore;
  }
  return batch.some_posted() ? RdmaNext::kBroken : RdmaNext::kRefused;
}

/// What the requests that have a completion by now took.
void RdmaPlanner::give_back_room(RdmaOperation& operation) noexcept {
  if (operation.carried > 0) {
    credits_.completed(operation.carried, &operation);
    operation.carried = 0;
  }
  reads_in_flight_ -= operation.reads;
  operation.reads = 0;
}

void RdmaPlanner::complete(RdmaOperation& operation) noexcept {
  give_back_room(operation);
  if (operation.carried_later > 0) {
    credits_.completed(operation.carried_later, &operation.carried_later);
    operation.carried_later = 0;
  }
  operation.windows = 0;
  give_back_keys(operation);
}

void RdmaPlanner::error(RdmaOperation& operation) noexcept {
  for (MrPool::Slot*& slot : operation.temporary) {
    if (slot != nullptr && slot->mr == nullptr) {
      pool_.give_back_bound(slot);
      slot = nullptr;
    }
  }
  complete(operation);
}

std::string RdmaPlanner::explain(const RdmaOperation& operation) const {
  const RdmaPlan plan = this->plan(operation);
  std::string text = std::string(name_of(operation.kind)) + " of " + std::to_string(operation.length()) + " bytes in " +
                     std::to_string(operation.pieces) + " pieces: " + std::to_string(plan.requests) + " requests, " +
                     std::to_string(plan.entries) + " entries (" + std::to_string(plan.bytes) +
                     " bytes) of the send queue";
  if (plan.is_inline) {
    text += ", inline";
  }
  if (plan.reads > 0) {
    text +=
        ", " + std::to_string(plan.reads) + " of " + std::to_string(limits_.outstanding_reads) + " outstanding reads";
  }
  if (plan.registrations > 0) {
    text += ", " + std::to_string(plan.registrations) + " temporary registrations";
  }
  if (plan.confirms) {
    text += ", the last reads back a byte";
  }
  if (plan.windows > 0) {
    text += ", " + std::to_string(plan.windows) + " memory windows bound, and invalidated afterwards";
  }
  return text;
}

}  // namespace fabric
