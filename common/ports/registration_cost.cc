// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/registration_cost.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

namespace fabric {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmall = std::size_t{64} << 10;
constexpr std::size_t kLarge = std::size_t{256} << 10;
constexpr int kRounds = 3;  // the first finds nothing in caches

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Unmap {
  void operator()(std::byte* memory) const noexcept { munmap(memory, kLarge); }
};

/// Memory whose pages are there, so that the kernel only pins them.
std::unique_ptr<std::byte, Unmap> touched_memory() noexcept {
  void* const memory = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return std::unique_ptr<std::byte, Unmap>(memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory));
}

/// Lowers `least` to the time that it takes now. False if it cannot be done.
bool time_registration(ibv_pd* pd, std::byte* memory, std::size_t size, double& least) noexcept {
  const auto start = Clock::now();
  ibv_mr* const region = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr || ibv_dereg_mr(region) != 0) {
    return false;
  }
  least = std::min(least, since(start));
  return true;
}

void time_copy(std::byte* memory, double& least) noexcept {
  const auto start = Clock::now();
  std::memcpy(memory, memory + kLarge / 2, kLarge / 2);
  asm volatile("" : : "r"(memory) : "memory");  // nobody reads it, but the time counts
  least = std::min(least, since(start));
}

}  // namespace

RegistrationCost registration_cost_of(std::uint64_t small, double small_time, std::uint64_t large, double large_time,
                                      double copy_per_mib) noexcept {
  constexpr double kMib = 1U << 20;
  RegistrationCost cost;
  cost.per_mib = std::max(0.0, (large_time - small_time) / static_cast<double>(large - small) * kMib);
  cost.each = std::max(0.0, small_time - cost.per_mib * static_cast<double>(small) / kMib);
  cost.copy_per_mib = std::max(RegistrationCost{}.copy_per_mib, copy_per_mib);
  cost.is_measured = true;
  return cost;
}

RegistrationCost measure_registration(ibv_pd* pd) noexcept {
  const auto memory = touched_memory();
  if (!memory) {
    return {};
  }
  double small = std::numeric_limits<double>::max();
  double large = small;
  double copy = small;
  for (int round = 0; round < kRounds; ++round) {
    if (!time_registration(pd, memory.get(), kSmall, small) || !time_registration(pd, memory.get(), kLarge, large)) {
      return {};
    }
    time_copy(memory.get(), copy);
  }
  return registration_cost_of(kSmall, small, kLarge, large, copy * ((1U << 20) / (kLarge / 2)));
}

}  // namespace fabric
