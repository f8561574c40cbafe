// SPDX-License-Identifier: BSD-3-Clause
//
// The receive buffers of one receive queue, a queue pair's own or a shared one: which are posted, which lie ready to be
// posted again.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "btl_fabric/base/fragment_pool.h"
#include "common/accounting/queue_credits.h"

namespace fabric {

/// Belongs to whoever holds the context's lock. Buffers that come back are kept and posted again without passing the pool.
class ReceiveBuffers {
 public:
  /// For a queue made for the receives of `space` (QueueSpace::for_receives).
  ReceiveBuffers(FragmentPool& pool, const QueueSpace& space) noexcept(!kHasLedger)
      : pool_(pool), bytes_(space.needed(kPieces)), rx_(space) {}
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;
  ~ReceiveBuffers() {
    mark_spares();
    while (spare_ != nullptr) {
      pool_.put(pop_spare());
    }
  }

  /// Those that lie ready are told from those that are posted: Fragment::posted_on is null.
  void mark_spares() noexcept {
    for (Fragment* one = spare_; one != nullptr; one = one->next) {
      one->posted_on = nullptr;
    }
  }

  /// Receives posted and not completed.
  [[nodiscard]] std::uint32_t posted() const noexcept { return rx_.posted(); }
  /// Receives that can be posted now.
  [[nodiscard]] std::uint64_t rx_size_left() const noexcept { return rx_.size_left(); }
  /// The same for threads that do not hold the lock: what it was a moment ago.
  [[nodiscard]] std::uint64_t rx_size_left_seen() const noexcept { return rx_.size_left_seen(); }

  /// A receive completed; its buffer is in use until give_back().
  void completed(const Fragment* fragment) noexcept { rx_.completed(bytes_, fragment); }

  /// Takes up to `count` buffers more, which lie ready then. Gives how many there were.
  [[nodiscard]] std::uint32_t add(std::uint32_t count) noexcept {
    for (std::uint32_t added = 0; added < count; ++added) {
      Fragment* const fragment = pool_.get();
      if (fragment == nullptr) {
        return added;
      }
      give_back(fragment);
    }
    return count;
  }

  void give_back(Fragment* fragment) noexcept {
    fragment->next = spare_;
    spare_ = fragment;
  }

  /// Posts up to `count` receives in one call of `post_list` (which takes the first request of the list and a place for
  /// the one that was refused). Gives the number posted: fewer when there are no more buffers, or the queue is full.
  template <class PostList>
  std::uint32_t fill(std::uint32_t count, LinkQueue* on, PostList post_list) noexcept {
    ibv_recv_wr* first = nullptr;
    ibv_recv_wr** link = &first;
    std::uint32_t chained = 0;
    for (const std::uint32_t most = rx_.room_for(count, bytes_); chained < most; ++chained) {
      Fragment* fragment = spare_ != nullptr ? pop_spare() : pool_.get();
      if (fragment == nullptr) {
        break;
      }
      rx_.is_to_be_taken(bytes_, fragment);
      fragment->posted_on = on;
      *link = &fragment->receive_request;
      link = &fragment->receive_request.next;
    }
    *link = nullptr;
    rx_.take_all(chained, bytes_);
    ibv_recv_wr* refused = nullptr;
    if (chained > 0 && post_list(first, &refused) != 0) {
      for (; refused != nullptr; --chained) {
        auto* fragment = reinterpret_cast<Fragment*>(refused->wr_id);
        refused = refused->next;
        rx_.completed(bytes_, fragment);
        give_back(fragment);
      }
    }
    return chained;
  }

 private:
  [[nodiscard]] Fragment* pop_spare() noexcept {
    Fragment* fragment = spare_;
    spare_ = fragment->next;
    return fragment;
  }

  static constexpr std::uint32_t kPieces = 1;  ///< of memory of a receive

  FragmentPool& pool_;
  Fragment* spare_ = nullptr;
  const std::uint64_t bytes_;  ///< of the queue that a receive takes
  RxCredits rx_;
};

}  // namespace fabric
