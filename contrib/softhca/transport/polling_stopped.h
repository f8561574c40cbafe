// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keeps pollers away from the completion queues of a queue pair, whose completions are to be removed.
#include <functional>
#include <utility>

#include "verbs/objects.h"

namespace softhca {

// Holds their Cq::mutex for a scope: that of the lower address first, so that two who do this never wait for each other.
class PollingStopped {
 public:
  // nullptr: holds none.
  explicit PollingStopped(const Qp* qp) {
    if (qp == nullptr) return;
    first_ = of(qp->qp_base.send_cq);
    second_ = of(qp->qp_base.recv_cq);
    if (first_ == second_) second_ = nullptr;
    if (std::less<>()(second_, first_)) std::swap(first_, second_);
    if (first_ != nullptr) first_->mutex.lock();
    if (second_ != nullptr) second_->mutex.lock();
  }
  ~PollingStopped() {
    if (second_ != nullptr) second_->mutex.unlock();
    if (first_ != nullptr) first_->mutex.unlock();
  }
  PollingStopped(const PollingStopped&) = delete;
  PollingStopped& operator=(const PollingStopped&) = delete;

 private:
  static Cq* of(ibv_cq* cq) { return cq != nullptr ? Cq::of(cq) : nullptr; }

  Cq* first_ = nullptr;
  Cq* second_ = nullptr;
};

}  // namespace softhca
