// SPDX-License-Identifier: BSD-3-Clause
//
// How a large read or write is divided among several ports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace fabric {

/// All pieces but the last are multiples of so many bytes, so that pages are not shared between devices.
inline constexpr std::uint64_t kStripeUnit = 4096;

/// Divides `size` bytes into one piece for each weight, in order and in proportion: `lengths` are as many, and their sum is
/// `size`. Each is within kStripeUnit of its share, and may be 0. Weights that are all 0 count as equal.
inline void split_by_weight(std::uint64_t size, std::span<const std::uint32_t> weights,
                            std::span<std::uint64_t> lengths) noexcept {
  __extension__ using Product = unsigned __int128;
  const std::uint64_t known = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  const std::uint64_t total = known != 0 ? known : weights.size();
  const std::uint64_t units = size / kStripeUnit;
  std::uint64_t weight_so_far = 0;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::uint64_t begin = end;
    weight_so_far += known != 0 ? weights[i] : 1;
    const auto share = static_cast<std::uint64_t>(Product{units} * weight_so_far / total);
    end = weight_so_far == total ? size : share * kStripeUnit;
    lengths[i] = end - begin;
  }
}

}  // namespace fabric
