// SPDX-License-Identifier: BSD-3-Clause
//
// Who may post how much: the credits of a transmit and of a receive queue. They can be used in three ways, which mix:
// just try (take() says no when there is no room), count posts and completions against what there was at first, or ask
// size_left() before. size_left() promises operations of the largest size, so whatever is posted next fits; and it never
// says less than plain counting would.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "common/accounting/credit_ledger.h"
#include "common/accounting/queue_space.h"

namespace fabric {

/// A number that one thread at a time writes and reads, and that any thread may look at.
class SeenNumber {
 public:
  SeenNumber(std::uint64_t value = 0) noexcept : value_(value) {}  // NOLINT: it is a number
  operator std::uint64_t() const noexcept { return value_; }       // NOLINT
  void set(std::uint64_t value) noexcept { std::atomic_ref(value_).store(value, std::memory_order_relaxed); }
  /// For any thread.
  [[nodiscard]] std::uint64_t seen() const noexcept {
    return std::atomic_ref(const_cast<std::uint64_t&>(value_)).load(std::memory_order_relaxed);
  }

 private:
  std::uint64_t value_;
};

/// Bytes of a transmit queue. An operation without a completion of its own keeps its bytes until the next one that has
/// a completion is done: a queue pair completes in order. Not thread-safe: belongs to whoever holds the queue pair.
/// `owner` is for the ledger of a debug build: who gives the bytes back.
class TxCredits {
 public:
  TxCredits() = default;
  explicit TxCredits(const QueueSpace& space) noexcept(!kHasLedger)
      : space_(space), largest_(space.largest()), free_(space.size()), limit_(space.size()), ledger_(space.size()) {}

  [[nodiscard]] const QueueSpace& space() const noexcept { return space_; }
  /// Bytes of it that may be in use now: all, unless somebody has said less.
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  /// No more than the space, and no less than what is used.
  void set_limit(std::uint64_t bytes) noexcept {
    assert(bytes <= space_.size() && bytes >= used());
    free_.set(bytes - used());
    limit_ = bytes;
    ledger_.resize(bytes);
    check_ledger();
  }

  /// Operations of the largest size that can be posted now.
  [[nodiscard]] std::uint64_t size_left() const noexcept { return free_ / largest_; }
  /// The same for threads that do not hold the queue pair: what it was a moment ago.
  [[nodiscard]] std::uint64_t size_left_seen() const noexcept { return free_.seen() / largest_; }
  /// The same question with a cheaper answer: is it at least one?
  [[nodiscard]] bool has_room() const noexcept { return free_ >= largest_; }
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept { return free_ >= bytes; }

  /// Takes the bytes of an operation that has no completion of its own. False, and nothing has happened, if there is no
  /// room.
  [[nodiscard]] bool take_unsignaled(std::uint64_t bytes) noexcept {
    if (bytes > free_) {
      return false;
    }
    free_.set(free_ - bytes);
    unsignaled_ += bytes;
    ledger_.take(bytes);
    check_ledger();
    return true;
  }

  /// Takes the bytes of an operation whose completion will tell. Gives what that completion frees, which goes to
  /// completed() then: its own bytes and those of the operations before it that have no completion. 0, and nothing has
  /// happened, if there is no room.
  [[nodiscard]] std::uint64_t take_signaled(std::uint64_t bytes, const void* owner = nullptr) noexcept {
    if (bytes > free_) {
      return 0;
    }
    free_.set(free_ - bytes);
    const std::uint64_t carried = unsignaled_ + bytes;
    unsignaled_ = 0;
    ledger_.take(bytes, owner);
    check_ledger();
    return carried;
  }

  /// An operation that has a completion is done, well or not.
  void completed(std::uint64_t carried, const void* owner = nullptr) noexcept {
    free_.set(free_ + carried);
    ledger_.give_back(carried, owner);
    check_ledger();
  }

  /// Nothing is posted and not known to be done.
  [[nodiscard]] bool is_full() const noexcept { return free_ == limit_; }
  /// Bytes of what is posted and not known to be done.
  [[nodiscard]] std::uint64_t used() const noexcept { return limit_ - free_; }
  /// Bytes posted since the last operation that has a completion.
  [[nodiscard]] std::uint64_t unsignaled() const noexcept { return unsignaled_; }

 private:
  void check_ledger() noexcept {
    if constexpr (kHasLedger) {
      ledger_.compare(free_);
      if (!ledger_.problem().empty()) {
        ledger_is_wrong("a send queue", ledger_.problem());
      }
    }
  }

  QueueSpace space_;
  std::uint64_t largest_ = 1;
  SeenNumber free_;
  std::uint64_t limit_ = 0;
  std::uint64_t unsignaled_ = 0;
  [[no_unique_address]] TxLedger ledger_{};
};

/// Bytes of a receive queue. Every receive has a completion, which gives its bytes back; where several links share a queue
/// they come in any order. Not thread-safe: belongs to whoever holds the queue. `buffer` is for the ledger of a debug build:
/// what is posted.
class RxCredits {
 public:
  RxCredits() = default;
  explicit RxCredits(const QueueSpace& space) noexcept(!kHasLedger)
      : space_(space), largest_(space.largest()), free_(space.size()), ledger_(space.size()) {}

  [[nodiscard]] const QueueSpace& space() const noexcept { return space_; }

  /// Receives of the largest size that can be posted now.
  [[nodiscard]] std::uint64_t size_left() const noexcept { return free_ / largest_; }
  /// The same for threads that do not hold the queue: what it was a moment ago.
  [[nodiscard]] std::uint64_t size_left_seen() const noexcept { return free_.seen() / largest_; }
  /// The same question with a cheaper answer: is it at least one?
  [[nodiscard]] bool has_room() const noexcept { return free_ >= largest_; }
  /// Receives posted and not completed.
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

  /// Takes the bytes of a receive. False, and nothing has happened, if there is no room.
  [[nodiscard]] bool take(std::uint64_t bytes, const void* buffer = nullptr) noexcept {
    if (bytes > free_) {
      return false;
    }
    free_.set(free_ - bytes);
    ++posted_;
    ledger_.take(bytes, buffer);
    check_ledger();
    return true;
  }
  /// How many of `count` receives of so many bytes there is room for.
  [[nodiscard]] std::uint32_t room_for(std::uint32_t count, std::uint64_t bytes) const noexcept {
    return count * bytes <= free_ ? count : static_cast<std::uint32_t>(free_ / bytes);
  }
  /// One of those that take_all() is told of next.
  void is_to_be_taken(std::uint64_t bytes, const void* buffer) noexcept { ledger_.take(bytes, buffer); }
  /// Takes the bytes of so many receives at once. There must be room.
  void take_all(std::uint32_t count, std::uint64_t bytes) noexcept {
    assert(count * bytes <= free_);
    free_.set(free_ - count * bytes);
    posted_ += count;
    check_ledger();
  }
  /// A receive has completed, well or not, or was not posted after all.
  void completed(std::uint64_t bytes, const void* buffer = nullptr) noexcept {
    assert(posted_ > 0);
    free_.set(free_ + bytes);
    --posted_;
    ledger_.give_back(bytes, buffer);
    check_ledger();
  }
  [[nodiscard]] bool is_full() const noexcept { return free_ == space_.size(); }

 private:
  void check_ledger() noexcept {
    if constexpr (kHasLedger) {
      ledger_.compare(free_, posted_);
      if (!ledger_.problem().empty()) {
        ledger_is_wrong("a receive queue", ledger_.problem());
      }
    }
  }

  QueueSpace space_;
  std::uint64_t largest_ = 1;
  SeenNumber free_;
  std::uint32_t posted_ = 0;
  [[no_unique_address]] RxLedger ledger_{};
};

}  // namespace fabric
