// SPDX-License-Identifier: BSD-3-Clause
//
// Histograms by powers of two: of sizes, and of counts.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fabric {

/// Class k > 0 is of numbers above 2^(k-1) and up to 2^k; class 0 of 0 and 1. The last takes all that are larger.
inline constexpr std::size_t kSizeClasses = 41;
using SizeClasses = std::array<std::uint64_t, kSizeClasses>;

[[nodiscard]] constexpr std::size_t size_class(std::uint64_t number) noexcept {
  return number <= 1 ? 0
                     : std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(number - 1)), kSizeClasses - 1);
}
/// The largest number of a class.
[[nodiscard]] constexpr std::uint64_t largest_of_class(std::size_t index) noexcept {
  return std::uint64_t{1} << index;
}
static_assert(size_class(128) == 7 && size_class(129) == 8 && largest_of_class(7) == 128 && size_class(2) == 1);

/// What a process has sent, read and written, by size. Messages count the headers of the PML, and each piece of a longer one.
struct SizeHistogram {
  SizeClasses messages{};
  SizeClasses writes{};
  SizeClasses reads{};
  SizeClasses peers{};  ///< peers of the job that it has sent to, read or written, by how often
  bool operator==(const SizeHistogram&) const = default;
};

}  // namespace fabric
