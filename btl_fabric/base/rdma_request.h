// SPDX-License-Identifier: BSD-3-Clause
//
// A read, write or atomic that the upper layer has asked for, from the call to its callback.
#pragma once

#include <cstdint>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "common/rdma/rdma_planner.h"
#include "common/rdma/verbs_rdma.h"

namespace fabric {

class Link;

struct RdmaRequest {
  RdmaOperation operation;
  Link* link = nullptr;         ///< that it was posted on
  RdmaRequest* next = nullptr;  ///< in the list it waits in

  bool stranded =
      false;  ///< the device has a part of it and will never have the rest: kept until its queue pair is gone

  // An atomic that goes as a message
  bool as_message = false;
  bool is_32_bit = false;
  mca_btl_base_atomic_op_t op = MCA_BTL_ATOMIC_ADD;
  bool is_swap = false;      ///< compare and swap, not `op`
  std::uint32_t serial = 0;  ///< tells its reply from those of others in the same place

  // One that goes in pieces, each a request of its own with a callback of ours; see Endpoint::begin_pieces()
  std::uint32_t pieces_to_come = 0;  ///< of the whole
  int status = OPAL_SUCCESS;         ///< of the whole, so far
  bool is_piece = false;

  // For the callback
  mca_btl_base_rdma_completion_fn_t callback = nullptr;
  void* local_address = nullptr;
  mca_btl_base_registration_handle_t* local_handle = nullptr;
  void* context = nullptr;
  void* data = nullptr;

  alignas(8) std::uint64_t scratch = 0;  ///< in registered memory: results that nobody wants, bytes that confirm

  /// As made, but for its scratch memory.
  void renew() noexcept {
    // Whoever adds a member is told by the test of this.
    operation.renew();
    link = nullptr;
    next = nullptr;
    stranded = as_message = is_32_bit = is_swap = is_piece = false;
    op = MCA_BTL_ATOMIC_ADD;
    serial = pieces_to_come = 0;
    status = OPAL_SUCCESS;
    callback = nullptr;
    local_address = context = data = nullptr;
    local_handle = nullptr;
  }
};

/// First in, first out, linked through the requests themselves.
class RdmaRequestQueue {
 public:
  /// Requests that wait for a peer at most. With more, osc/rdma tries again later, but ob1, which asks for all pieces of a message
  /// at once, loses some: so this is more pieces than a message has.
  static constexpr std::uint32_t kMost = 1U << 20;

  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] RdmaRequest* front() const noexcept { return head_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

  void push_back(RdmaRequest* request) noexcept {
    request->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = request;
    tail_ = request;
    ++count_;
  }
  /// Nobody is called back when they end.
  void forget_callers() noexcept {
    for (RdmaRequest* one = head_; one != nullptr; one = one->next) {
      one->callback = nullptr;
    }
  }
  RdmaRequest* pop_front() noexcept {
    RdmaRequest* first = head_;
    head_ = first->next;
    --count_;
    return first;
  }

 private:
  RdmaRequest* head_ = nullptr;
  RdmaRequest* tail_ = nullptr;
  std::uint32_t count_ = 0;
};

/// The requests of a device, made a block at a time and used again. Belongs to whoever holds the context's lock.
class RdmaRequestPool {
 public:
  explicit RdmaRequestPool(RdmaVerbs& verbs) noexcept : verbs_(verbs) {}
  ~RdmaRequestPool() {
    for (const Block& block : blocks_) {
      verbs_.deregister_memory(block.mr, RegionUse::kReserve);
    }
  }
  RdmaRequestPool(const RdmaRequestPool&) = delete;
  RdmaRequestPool& operator=(const RdmaRequestPool&) = delete;

  /// A request with its scratch memory as `confirm`, else cleared; null if no memory can be registered for more.
  [[nodiscard]] RdmaRequest* get(Transport link) {
    if (spare_ == nullptr && !grow(link)) {
      return nullptr;
    }
    RdmaRequest* request = spare_;
    spare_ = request->next;
    request->renew();
    return request;
  }
  void put(RdmaRequest* request) noexcept {
    request->next = spare_;
    spare_ = request;
  }

 private:
  static constexpr std::size_t kFirstBlock = 64;
  struct Block {
    std::vector<RdmaRequest> requests;
    ibv_mr* mr;
  };

  [[gnu::cold]] bool grow(Transport link) {
    // Each block is four times the last one: memory regions may be few.
    const std::size_t count = blocks_.empty() ? kFirstBlock : 4 * blocks_.back().requests.size();
    // The block is kept before it is registered: what follows allocates nothing.
    Block& block = blocks_.emplace_back(Block{std::vector<RdmaRequest>(count), nullptr});
    const unsigned access = access_flags(MemoryRole::kReadSink, link);
    ibv_mr* mr =
        verbs_.register_memory(block.requests.data(), count * sizeof(RdmaRequest), access, RegionUse::kReserve);
    if (mr == nullptr) {
      blocks_.pop_back();
      return false;
    }
    block.mr = mr;
    for (RdmaRequest& request : block.requests) {
      request.operation.confirm = {&request.scratch, sizeof request.scratch, mr, access};
      put(&request);
    }
    return true;
  }

  RdmaVerbs& verbs_;
  std::vector<Block> blocks_;
  RdmaRequest* spare_ = nullptr;
};

/// What the RDMA operations of a device share.
struct DeviceRdma {
  /// `budget`: that memory regions are taken from; null: there is no limit.
  DeviceRdma(ibv_pd* pd, const MrPoolHints& hints, RegionBudget* budget = nullptr)
      : verbs(pd, budget), regions(verbs, hints), requests(verbs) {}

  VerbsRdma verbs;
  MrPool regions;
  RdmaRequestPool requests;
};

}  // namespace fabric
