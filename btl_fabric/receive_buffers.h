// SPDX-License-Identifier: BSD-3-Clause
//
// The receive buffers of one receive queue, a queue pair's own or a shared one: which are posted, which lie ready to be
// posted again.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>

#include "btl_fabric/fragment_pool.h"

namespace fabric {

/// Belongs to whoever holds the BTL lock. Buffers that come back are kept and posted again without passing the pool.
class ReceiveBuffers {
 public:
  explicit ReceiveBuffers(FragmentPool& pool) noexcept : pool_(pool) {}
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;
  ~ReceiveBuffers() {
    while (spare_ != nullptr) {
      pool_.put(pop_spare());
    }
  }

  /// Receives posted and not completed.
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

  /// A receive completed; its buffer is in use until give_back().
  void completed() noexcept {
    assert(posted_ > 0);
    --posted_;
  }

  void give_back(Fragment* fragment) noexcept {
    fragment->next = spare_;
    spare_ = fragment;
  }

  /// Posts up to `count` receives in one call of `post_list` (which takes the first request of the list and a place for
  /// the one that was refused). Gives the number posted: fewer when there are no more buffers.
  template <class PostList>
  std::uint32_t fill(std::uint32_t count, EndpointQueue* on, PostList post_list) noexcept {
    ibv_recv_wr* first = nullptr;
    ibv_recv_wr** link = &first;
    std::uint32_t chained = 0;
    for (; chained < count; ++chained) {
      Fragment* fragment = spare_ != nullptr ? pop_spare() : pool_.get();
      if (fragment == nullptr) {
        break;
      }
      fragment->posted_on = on;
      *link = &fragment->receive_request;
      link = &fragment->receive_request.next;
    }
    *link = nullptr;
    if (chained == 0) {
      return 0;
    }
    ibv_recv_wr* refused = nullptr;
    if (post_list(first, &refused) != 0) {
      for (; refused != nullptr; --chained) {
        auto* fragment = reinterpret_cast<Fragment*>(refused->wr_id);
        refused = refused->next;
        give_back(fragment);
      }
    }
    posted_ += chained;
    return chained;
  }

 private:
  [[nodiscard]] Fragment* pop_spare() noexcept {
    Fragment* fragment = spare_;
    spare_ = fragment->next;
    return fragment;
  }

  FragmentPool& pool_;
  Fragment* spare_ = nullptr;
  std::uint32_t posted_ = 0;
};

}  // namespace fabric
