// SPDX-License-Identifier: BSD-3-Clause
//
// When packets of several messages leave before they are full: early ones let the peer work while this process still sends, but each
// costs a request. The first of those between two calls of progress() holds a few messages, each after it twice as many. Where
// posting takes long (a system call, as with the kernel's devices in software), they are filled instead.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace fabric {

/// Of a path. Belongs to whoever holds the context's lock.
class EarlyPackets {
 public:
  static constexpr std::uint32_t kFilled = std::numeric_limits<std::uint32_t>::max();
  /// Messages in the first where posting is cheap: their work is several times that of the request that carries them.
  static constexpr std::uint32_t kFirst = 16;
  static constexpr std::chrono::nanoseconds kCheap{1000};
  static constexpr unsigned kSamples = 16;

  /// `first`: messages in the first; 0: as many as fit; none: kFirst, until posting proves not to be cheap.
  explicit EarlyPackets(std::optional<std::uint32_t> first) noexcept
      : first_(!first ? kFirst : (*first == 0 ? kFilled : *first)), to_measure_(first ? 0 : kSamples) {}

  /// Messages of the first packet.
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  /// Messages of the one after a packet of so many.
  [[nodiscard]] static std::uint32_t next(std::uint32_t messages) noexcept {
    return messages > kFilled / 2 ? kFilled : 2 * messages;
  }

  /// Posts by `post`, and looks at how long that takes until it is known. Gives what `post` does.
  template <class Post>
  auto timed(Post post) noexcept {
    if (to_measure_ == 0) [[likely]] {
      return post();
    }
    const auto start = std::chrono::steady_clock::now();
    const auto result = post();
    took(std::chrono::steady_clock::now() - start);
    return result;
  }
  /// A request has been posted in that time. The least of several counts: a process may lose its processor meanwhile.
  void took(std::chrono::nanoseconds time) noexcept {
    least_ = std::min(least_, time);
    if (--to_measure_ == 0 && least_ > kCheap) {
      first_ = kFilled;
    }
  }

 private:
  std::uint32_t first_;
  unsigned to_measure_;  ///< so many more
  std::chrono::nanoseconds least_ = std::chrono::nanoseconds::max();
};

}  // namespace fabric
