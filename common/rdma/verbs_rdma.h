// SPDX-License-Identifier: BSD-3-Clause
//
// What the RDMA planner asks for, by libibverbs.
#pragma once

#include <atomic>
#include <cerrno>

#include "common/rdma/access_flags.h"
#include "common/rdma/mr_pool.h"

namespace fabric {

/// Of a device. The queue pair is named per call: `on()` before every post.
class VerbsRdma final : public RdmaVerbs {
 public:
  /// `budget`: that memory regions are taken from; null: there is no limit.
  explicit VerbsRdma(ibv_pd* pd, RegionBudget* budget = nullptr) noexcept : pd_(pd), budget_(budget) {}

  /// The queue pair that is posted to from now on, and, of an XRC one, the shared receive queue that tells the process.
  VerbsRdma& on(ibv_qp* queue_pair, std::uint32_t remote_srqn = 0) noexcept {
    queue_pair_ = queue_pair;
    remote_srqn_ = remote_srqn;
    return *this;
  }

  int post(ibv_send_wr* first, ibv_send_wr** refused) noexcept override {
    for (ibv_send_wr* request = first; remote_srqn_ != 0 && request != nullptr; request = request->next) {
      request->qp_type.xrc.remote_srqn = remote_srqn_;
    }
    const int error_number = ibv_post_send(queue_pair_, first, refused);
    if (error_number != 0) {
      errno = error_number;
    }
    return error_number;
  }
  ibv_mr* register_memory(void* address, std::size_t length, unsigned access, RegionUse use) noexcept override {
    device_refused_ = false;
    if (is_lost_) {
      return &no_region_;
    }
    if (budget_ != nullptr && !budget_->take(use)) {
      return nullptr;
    }
    const unsigned wished = wishes_.relaxed_ordering ? access : access & ~unsigned{IBV_ACCESS_RELAXED_ORDERING};
    ibv_mr* mr = ibv_reg_mr(pd_, address, length, static_cast<int>(wished));
    device_refused_ = mr == nullptr;
    if (mr == nullptr && budget_ != nullptr) {
      budget_->give_back(use);
    }
    return mr;
  }
  /// How memory is registered from now on. For one operation none is on demand: there would be nothing to gain.
  void set_wishes(const AccessWishes& wishes) noexcept { wishes_ = wishes; }
  /// The device is gone: nothing is posted any more, and memory needs no region.
  void lose_device() noexcept { is_lost_ = true; }
  /// The last memory was not registered because of the device, not because none was left of the process's regions.
  [[nodiscard]] bool device_refused() const noexcept { return device_refused_; }
  void deregister_memory(ibv_mr* mr, RegionUse use) noexcept override {
    if (mr == &no_region_) {
      return;
    }
    ibv_dereg_mr(mr);
    if (budget_ != nullptr) {
      budget_->give_back(use);
    }
  }
  ibv_mw* make_window() noexcept override { return ibv_alloc_mw(pd_, IBV_MW_TYPE_2); }
  void destroy_window(ibv_mw* window) noexcept override { ibv_dealloc_mw(window); }

 private:
  ibv_pd* pd_;
  RegionBudget* budget_;
  AccessWishes wishes_;
  ibv_qp* queue_pair_ = nullptr;
  std::uint32_t remote_srqn_ = 0;
  bool device_refused_ = false;
  std::atomic<bool> is_lost_ = false;
  ibv_mr no_region_{};
};

}  // namespace fabric
