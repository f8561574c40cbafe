// SPDX-License-Identifier: BSD-3-Clause
//
// The send side of a queue pair: its room, and who waits for it. A link's P and S queues have one each. X queues
// send through the queue pair to the peer's node (cpc::XrcPath), which the links to all processes there share; what only
// that one needs is in shared_send_queue.h.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/accounting/queue_credits.h"
#include "common/accounting/send_completions.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric {

struct LinkQueue;

/// The carried bytes of batches of sends whose completions are to come, oldest first.
class BatchRing {
 public:
  explicit BatchRing(std::size_t most) : bytes_(most) {}
  void push(std::uint64_t carried) noexcept { bytes_[(first_ + count_++) % bytes_.size()] = carried; }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::uint64_t pop() noexcept {
    const std::uint64_t oldest = bytes_[first_];
    first_ = (first_ + 1) % bytes_.size();
    --count_;
    return oldest;
  }

 private:
  std::vector<std::uint64_t> bytes_;  ///< as many as ever fit the send queue
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Belongs to whoever holds the context's lock.
struct SendQueue {
  /// `space`: of the queue pair, without the entries that are kept for markers.
  static constexpr std::uint32_t kMostBatch = 64;

  explicit SendQueue(const QueueSpace& space)
      : tx(space),
        own(static_cast<std::uint32_t>(space.few_entries(cpc::kOwnSends))),
        signal_batch(batch_of(tx)),
        batches(space.entries() / least_batch() + 2) {}

  ibv_qp* qp = nullptr;            ///< the connection owns it
  TxCredits tx;                    ///< room in the send queue, as far as completions have told
  std::uint32_t unsignaled = 0;    ///< operations posted since the last signalled one
  bool has_whole_batches = false;  ///< KeptPackets: only those of a batch count for that
  const std::uint32_t own;         ///< entries for which there is always room in the completion queue
  std::uint32_t borrowed = 0;      ///< entries beyond those that are taken from `lender`
  std::uint32_t signal_batch;
  std::uint32_t place = 0;            ///< PacketPath's: among those that have a lender
  SendCompletions* lender = nullptr;  ///< null: there is room for all
  BatchRing batches;
  /// Of a shared one: whose turn it is when there is room. Others do not overtake.
  LinkQueue* first_waiting = nullptr;

  [[nodiscard]] bool has_room() const noexcept { return tx.has_room() && first_waiting == nullptr; }

  /// An operation is posted that is signalled, and none of a batch.
  void signaled() noexcept { unsignaled = has_whole_batches ? unsignaled : 0; }

  /// It shares the completion queue's entries for sends with others. Nothing is posted.
  void share(SendCompletions& completions) noexcept {
    lender = &completions;
    set_borrowed(0);
  }
  /// Takes up to `count` entries more. False if there are none, or it has all that it can use.
  [[nodiscard]] bool borrow(std::uint32_t count) noexcept {
    const auto all = static_cast<std::uint32_t>(tx.space().entries());
    const std::uint32_t taken = lender != nullptr ? lender->take(std::min(count, all - own - borrowed)) : 0;
    if (taken > 0) {
      set_borrowed(borrowed + taken);
    }
    return taken > 0;
  }
  /// Gives back what it has borrowed and does not use.
  void give_back() noexcept {
    const std::uint64_t used = (tx.used() + tx.space().largest() + tx.space().smallest() - 1) / tx.space().smallest();
    const auto kept = static_cast<std::uint32_t>(used > own ? used - own : 0);
    if (kept < borrowed) {
      lender->give_back(borrowed - kept);
      set_borrowed(kept);
    }
  }

 private:
  static std::uint32_t batch_of(const TxCredits& tx) noexcept {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tx.limit() / tx.space().largest() / 4, 1, kMostBatch));
  }
  /// With nothing borrowed.
  [[nodiscard]] std::uint64_t least_batch() const noexcept {
    return std::clamp<std::uint64_t>(own * tx.space().smallest() / tx.space().largest() / 4, 1, kMostBatch);
  }
  void set_borrowed(std::uint32_t count) noexcept {
    borrowed = count;
    tx.set_limit(std::min(tx.space().size(), (own + count) * tx.space().smallest()));
    signal_batch = batch_of(tx);
  }
};

}  // namespace fabric
