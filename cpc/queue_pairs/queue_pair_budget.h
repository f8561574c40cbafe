// SPDX-License-Identifier: BSD-3-Clause
//
// How many queue pairs the connections of a port may have, in one context: this process's part of the device, or less if the
// user or the device says so. With more peers than that, connections that are idle are given up for those that are wanted.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <optional>

namespace fabric::cpc {

/// What is made for peers that ask never waits for what is made to ask others: a part is kept for it. Else processes could all
/// have nothing but connections that wait for each other. (Connections that peers have asked for come about without anything
/// else, and can be given up then.)
///
/// Where the device has refused one there is room for no more than there are then. But others may have had its queue
/// pairs for a moment only, and a cache of connections that is too small costs much. So what peers ask for is tried
/// again after a second, and if that succeeds, or somebody who has waited for long gets more, the refusal is forgotten.
/// What this process wants keeps to it for longer, else it would soon have the part that is kept for peers of what
/// there really is.
class QueuePairBudget {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kHoldsForPeers{1};
  static constexpr std::chrono::seconds kHoldsForUs{30};

  /// `granted`: 0 or less sets no limit. `largest`: queue pairs of a connection at most. With room for less than two of those
  /// there is no limit either, and the device says what it refuses. `wanted`: by connections with all peers that are known; if
  /// there are so many, only what is left is kept.
  explicit QueuePairBudget(std::int64_t granted = 0, std::int64_t largest = 1, std::int64_t wanted = INT64_MAX) noexcept
      : largest_(largest),
        granted_(granted >= 2 * largest ? granted : 0),
        kept_(wanted > granted ? kept_of(granted) : std::min(kept_of(granted), granted - wanted)) {}
  QueuePairBudget(const QueuePairBudget&) = delete;
  QueuePairBudget& operator=(const QueuePairBudget&) = delete;
  ~QueuePairBudget() { assert(taken_ == 0); }

  [[nodiscard]] bool has_limit() const noexcept { return granted_ > 0; }
  /// There are `count` more for a connection that a peer asks for, or that this process wants.
  [[nodiscard]] bool has(std::int64_t count, bool peer_asks, Clock::time_point now = Clock::now()) const noexcept {
    if (refused_ && now - refused_->when < (peer_asks ? kHoldsForPeers : kHoldsForUs)) {
      return taken_ + count <= refused_->left - (peer_asks ? 0 : kept_of(refused_->left));
    }
    return !has_limit() || taken_ + count <= granted_ - (peer_asks ? 0 : kept_);
  }
  /// Queue pairs are to be made. More than has() says is no error: others may have asked in between.
  void take(std::int64_t count) noexcept { taken_ += count; }
  /// The device has made all that are taken.
  void made() noexcept {
    if (refused_ && taken_ > refused_->left) {
      refused_.reset();
    }
  }
  void give_back(std::int64_t count) noexcept {
    assert(taken_ >= count);
    taken_ -= count;
  }
  /// The device has refused one: for now there are no more than these. False if that leaves nothing to live with.
  [[nodiscard]] bool shrink(Clock::time_point now = Clock::now()) noexcept {
    if (taken_ < 2 * largest_) {
      return false;
    }
    refused_ = Refusal{taken_, now};
    return true;
  }
  [[nodiscard]] std::int64_t taken() const noexcept { return taken_; }

 private:
  [[nodiscard]] std::int64_t kept_of(std::int64_t granted) const noexcept { return std::max(largest_, granted / 8); }

  struct Refusal {
    std::int64_t left = 0;  ///< granted instead
    Clock::time_point when;
  };

  const std::int64_t largest_;  ///< queue pairs of a connection at most
  const std::int64_t granted_;
  const std::int64_t kept_;  ///< for peers that ask
  std::int64_t taken_ = 0;
  std::optional<Refusal> refused_;
};

}  // namespace fabric::cpc
