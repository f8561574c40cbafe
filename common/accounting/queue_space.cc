// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/queue_space.h"

#include <array>
#include <charconv>
#include <string>

namespace fabric {
namespace {

struct CostsOfDriver {
  std::string_view prefix;  ///< of the device's name
  DeviceCosts costs;
};

/// Drivers whose queues are known. All of them count entries when a queue is made, and check entries when something is
/// posted, so an operation costs one, however large: what the hardware needs beyond that the driver has set aside. 64
/// is the size of a send queue's basic block.
constexpr std::array kKnown = {
    CostsOfDriver{"mlx4_", {{}, 64}},
    CostsOfDriver{"mlx5_", {{}, 64}},
    CostsOfDriver{"rxe", {{}, 1}},
    CostsOfDriver{"siw", {{}, 1}},
};

constexpr DeviceCosts kFallback{};

constexpr std::uint32_t kLargestCost = 65536;

}  // namespace

DeviceCosts device_costs(std::string_view device_name) noexcept {
  for (const CostsOfDriver& known : kKnown) {
    if (device_name.substr(0, known.prefix.size()) == known.prefix) {
      return known.costs;
    }
  }
  return kFallback;
}

Result<DeviceCosts> parse_costs(std::string_view text) {
  std::array<std::uint32_t, 3> numbers{};
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [stopped, error] = std::from_chars(next, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (error != std::errc() || numbers[i] > kLargestCost ||
        (last ? stopped != end : stopped == end || *stopped != ',')) {
      return failure("\"" + std::string(text) + "\" is not op_size,iov_size,alignment: three numbers up to " +
                     std::to_string(kLargestCost));
    }
    next = stopped + 1;
  }
  const auto [op_size, iov_size, alignment] = numbers;
  if (alignment == 0) {
    return failure("\"" + std::string(text) + "\" has an alignment of 0: it is 1 or more");
  }
  if (op_size == 0 && iov_size != 0) {
    return failure("\"" + std::string(text) + "\" has entries of one size (op_size 0), so iov_size must be 0 too");
  }
  return DeviceCosts{{op_size, iov_size}, alignment};
}

}  // namespace fabric
