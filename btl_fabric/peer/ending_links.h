// SPDX-License-Identifier: BSD-3-Clause
//
// Links that their endpoints go on without, until their last completions are in. They have two lists: one of all, from which those that
// are done are taken, and one for each endpoint (Endpoint::ending_), so that nobody has to look at thousands for those of one peer.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "btl_fabric/peer/endpoint.h"

namespace fabric {

/// First in, first out. Belongs to whoever holds the lock of the context.
class EndingLinks {
 public:
  EndingLinks() = default;
  EndingLinks(const EndingLinks&) = delete;
  EndingLinks& operator=(const EndingLinks&) = delete;
  /// One after the other: a list of thousands is too long for destructors within destructors.
  ~EndingLinks() {
    while (first_) {
      (void)pop_front();
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// EndpointLink::next leads to the others.
  [[nodiscard]] EndpointLink* first() const noexcept { return first_.get(); }

  void push_back(std::unique_ptr<EndpointLink> link) noexcept {
    EndpointLink* const last = link.get();
    (first_ ? last_->next : first_) = std::move(link);
    last_ = last;
    ++size_;
  }
  [[nodiscard]] std::unique_ptr<EndpointLink> pop_front() noexcept {
    std::unique_ptr<EndpointLink> link = std::move(first_);
    first_ = std::move(link->next);
    --size_;
    return link;
  }

 private:
  std::unique_ptr<EndpointLink> first_;
  EndpointLink* last_ = nullptr;  ///< if there is a first
  std::size_t size_ = 0;
};

}  // namespace fabric
