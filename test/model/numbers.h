// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers that grow for ever, of which only the differences or the order count: for the fingerprint of a world they are
// replaced by small ones, so that what looks the same later is the same. 0, which is none, stays 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fabric::model {

/// Differences count: incarnations.
class Shifted {
 public:
  void see(std::uint32_t number) { least_ = number != 0 && number < least_ ? number : least_; }
  [[nodiscard]] std::uint32_t of(std::uint32_t number) const { return number == 0 ? 0 : number - least_ + 1; }

 private:
  std::uint32_t least_ = UINT32_MAX;
};

/// The order counts: attempts.
class Ranked {
 public:
  void see(std::uint32_t number) {
    if (number != 0 && std::find(seen_.begin(), seen_.end(), number) == seen_.end()) {
      seen_.push_back(number);
    }
  }
  [[nodiscard]] std::uint32_t of(std::uint32_t number) const {
    return number == 0 ? 0
                       : static_cast<std::uint32_t>(std::count_if(
                             seen_.begin(), seen_.end(), [number](std::uint32_t one) { return one <= number; }));
  }

 private:
  std::vector<std::uint32_t> seen_;
};

/// Those of two processes, the lower rank first.
struct PairNumbers {
  Shifted incarnations;
  Ranked attempts[2];  ///< of the requests of either
};

inline constexpr std::size_t kMostProcesses = 4;

/// Of one process, by peer.
using ProcessNumbers = std::array<PairNumbers, kMostProcesses>;
/// Of all, both ways alike.
using AllNumbers = std::array<ProcessNumbers, kMostProcesses>;

}  // namespace fabric::model
