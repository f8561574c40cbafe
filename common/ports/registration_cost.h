// SPDX-License-Identifier: BSD-3-Clause
//
// What it costs to register memory with a device, beside copying it: what protocols are chosen by.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace fabric {

/// Times in microseconds. By default assumptions: those of an adapter whose driver asks its firmware for each registration.
struct RegistrationCost {
  double each = 25;           ///< of any registration and its end, however short
  double per_mib = 100;       ///< what each MiB adds
  double copy_per_mib = 100;  ///< to copy a MiB
  bool is_measured = false;

  /// To register so many bytes, and to end that.
  [[nodiscard]] double registering(std::uint64_t bytes) const noexcept { return each + per_mib * mib(bytes); }
  [[nodiscard]] double copying(std::uint64_t bytes) const noexcept { return copy_per_mib * mib(bytes); }

 private:
  [[nodiscard]] static double mib(std::uint64_t bytes) noexcept { return static_cast<double>(bytes) / (1U << 20); }
};

/// Registers and copies 64 and 256 KiB three times, in less than half a millisecond on most devices, and takes the least. A copy is
/// never taken for faster than the assumption: messages come from memory, and what is measured is in a cache. The assumptions
/// if the device registers nothing.
[[nodiscard]] RegistrationCost measure_registration(ibv_pd* pd) noexcept;

/// The line through the times of two sizes, in microseconds; neither part is below 0.
[[nodiscard]] RegistrationCost registration_cost_of(std::uint64_t small, double small_time, std::uint64_t large,
                                                    double large_time, double copy_per_mib) noexcept;

}  // namespace fabric
