// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_top/nic_counters.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace fabric::top {
namespace {

/// The name comes out of a page, and becomes a part of a path.
bool may_be_a_device(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.front() != '.' && name.find_first_not_of(kAllowed) == std::string::npos;
}

/// A setting of the driver's among its counters.
constexpr std::string_view kNoCounter = "lifespan";

void add_folder(const std::filesystem::path& folder, NicCounters& into) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream file(entry->path());
    std::uint64_t number = 0;
    if (entry->path().filename() != kNoCounter && file >> number) {  // some say N/A
      into[entry->path().filename()] = number;
    }
  }
}

}  // namespace

NicLook look_at_nic(const NicName& nic, const std::string& sysfs) {
  NicLook look{std::chrono::steady_clock::now(), {}};
  if (may_be_a_device(nic.device)) {
    const std::filesystem::path port = std::filesystem::path(sysfs) / nic.device / "ports" / std::to_string(nic.port);
    add_folder(port / "counters", look.counters);
    add_folder(port / "hw_counters", look.counters);
  }
  return look;
}

bool counts_trouble(const std::string& name) {
  constexpr std::array<std::string_view, 13> kParts = {"err",     "discard", "drop",      "retry",  "nak",
                                                       "nack",    "timeout", "duplicate", "out_of", "resend",
                                                       "retrans", "cnp",     "wait"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

}  // namespace fabric::top
