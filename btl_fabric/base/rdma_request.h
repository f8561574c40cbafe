// SPDX-License-Identifier: BSD-3-Clause
//
// A read, write or atomic that the upper layer has asked for, from the call to its callback.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/registration.h"
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

  /// The device has it.
  [[nodiscard]] bool is_under_way() const noexcept {
    return !stranded && (operation.carried > 0 || operation.carried_later > 0);
  }

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

  std::chrono::steady_clock::time_point repeated_since{};  ///< over one link after the other; zero: never

  // Where several ports may carry it: for another one than `operation` is for. Only of reads and writes, and if `local` is not null.
  Registration* local = nullptr;
  std::uint8_t detours = 0;  ///< ports that could not carry it
  mca_btl_base_registration_handle_t remote;

  // For the callback
  mca_btl_base_rdma_completion_fn_t callback = nullptr;
  void* local_address = nullptr;
  mca_btl_base_registration_handle_t* local_handle = nullptr;
  void* context = nullptr;
  void* data = nullptr;

  /// As made, but for `operation.confirm`.
  void renew() noexcept {
    // Whoever adds a member is told by the test of this.
    operation.renew();
    link = nullptr;
    next = nullptr;
    stranded = as_message = is_32_bit = is_swap = is_piece = false;
    op = MCA_BTL_ATOMIC_ADD;
    serial = pieces_to_come = 0;
    status = OPAL_SUCCESS;
    repeated_since = {};
    local = nullptr;
    detours = 0;
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
  /// Back where it was.
  void push_front(RdmaRequest* request) noexcept {
    request->next = head_;
    (head_ == nullptr ? tail_ : head_) = request;
    head_ = request;
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
    if (mr_ != nullptr) {
      verbs_.deregister_memory(mr_, RegionUse::kReserve);
    }
  }
  RdmaRequestPool(const RdmaRequestPool&) = delete;
  RdmaRequestPool& operator=(const RdmaRequestPool&) = delete;

  /// A request whose `operation.confirm` is the pool's scratch memory, else cleared; null if that cannot be registered.
  [[nodiscard]] RdmaRequest* get(Transport link) {
    if (spare_ == nullptr && !grow(link)) {
      return nullptr;
    }
    RdmaRequest* request = spare_;
    spare_ = request->next;
    request->renew();
    return request;
  }
  /// see(request), of all that have been made, whether they are in use or not.
  template <class See>
  void for_each(See see) {
    for (std::vector<RdmaRequest>& block : blocks_) {
      for (RdmaRequest& request : block) {
        see(request);
      }
    }
  }
  void put(RdmaRequest* request) noexcept {
    request->next = spare_;
    spare_ = request;
  }

 private:
  static constexpr std::size_t kFirstBlock = 64;

  [[gnu::cold]] bool grow(Transport link) {
    const unsigned access = access_flags(MemoryRole::kReadSink, link);
    if (scratch_ == nullptr) {
      scratch_ = std::make_unique<Scratch>();
    }
    if (mr_ == nullptr) {
      mr_ = verbs_.register_memory(scratch_.get(), sizeof(Scratch), access, RegionUse::kReserve);
    }
    if (mr_ == nullptr) {
      return false;
    }
    const std::size_t count = std::max(kFirstBlock, made_);  // twice as many as before
    for (RdmaRequest& request : blocks_.emplace_back(count)) {
      request.operation.confirm = {&scratch_->bytes, sizeof scratch_->bytes, mr_, access};
      put(&request);
    }
    made_ += count;
    return true;
  }

  /// Of all requests, since nobody reads it: results that nobody wants, bytes that confirm. A flood of requests takes no more memory
  /// regions than one does.
  struct alignas(64) Scratch {
    std::uint64_t bytes = 0;
  };

  RdmaVerbs& verbs_;
  std::unique_ptr<Scratch> scratch_;
  ibv_mr* mr_ = nullptr;
  std::vector<std::vector<RdmaRequest>> blocks_;
  std::size_t made_ = 0;  ///< requests in them
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
