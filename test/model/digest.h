// SPDX-License-Identifier: BSD-3-Clause
//
// A fingerprint of a world: two worlds with equal fingerprints are taken for the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fabric::model {

struct Fingerprint {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Fingerprint&) const = default;
  struct Hash {
    std::size_t operator()(const Fingerprint& one) const noexcept { return one.low; }
  };
};

/// One bit for each, the first in the lowest.
template <class... Flags>
[[nodiscard]] constexpr unsigned bits(Flags... flags) noexcept {
  unsigned all = 0;
  unsigned n = 0;
  ((all |= (flags ? 1U : 0U) << n++), ...);
  return all;
}

class Digest {
 public:
  void add(std::uint64_t value) {
    low_ = mix(low_ ^ value);
    high_ = mix(high_ + value * 0x9e3779b97f4a7c15U);
  }
  /// Adds a number that only serves to tell one thing from others (a queue pair, a channel): it is replaced by its rank
  /// among those that were named before, so that a world in which things have other numbers is the same world.
  void add_name(std::uint64_t number) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == number) {
        add(i);
        return;
      }
    }
    add(names_.size());
    names_.push_back(number);
  }
  [[nodiscard]] Fingerprint value() const noexcept { return {low_, high_}; }

 private:
  /// The finalizer of MurmurHash3.
  static std::uint64_t mix(std::uint64_t x) noexcept {
    x ^= x >> 33U;
    x *= 0xff51afd7ed558ccdU;
    x ^= x >> 33U;
    x *= 0xc4ceb9fe1a85ec53U;
    return x ^ x >> 33U;
  }

  std::uint64_t low_ = 1;
  std::uint64_t high_ = 2;
  std::vector<std::uint64_t> names_;
};

}  // namespace fabric::model
