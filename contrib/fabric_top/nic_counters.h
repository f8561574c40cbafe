// SPDX-License-Identifier: BSD-3-Clause
//
// What adapters count by themselves, as the kernel shows it below /sys/class/infiniband.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace fabric::top {

inline constexpr const char* kSysfs = "/sys/class/infiniband";

/// A port of a device.
struct NicName {
  std::string device;
  std::uint32_t port = 0;
  auto operator<=>(const NicName&) const = default;
};

/// By name: those of `counters` and those of `hw_counters`, in which drivers have what is theirs.
using NicCounters = std::map<std::string, std::uint64_t>;

struct NicLook {
  std::chrono::steady_clock::time_point when{};
  NicCounters counters{};
};

/// What a port has counted. Empty where the device counts nothing, or there is no such port; a name that cannot be that of a device
/// leads nowhere.
[[nodiscard]] NicLook look_at_nic(const NicName& nic, const std::string& sysfs = kSysfs);

/// Whether a counter is one of things that should not happen, or that cost: packets lost, refused or sent again.
[[nodiscard]] bool counts_trouble(const std::string& name);

}  // namespace fabric::top
