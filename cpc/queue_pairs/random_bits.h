// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers that processes started at the same moment do not share.
#pragma once

#include <sys/random.h>

#include <chrono>
#include <cstdint>

namespace fabric::cpc {

/// 32 random bits from the kernel; from the clock where it has none.
[[nodiscard]] inline std::uint32_t random_bits() noexcept {
  std::uint32_t bits = 0;
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof bits)) {
    bits = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return bits;
}

}  // namespace fabric::cpc
