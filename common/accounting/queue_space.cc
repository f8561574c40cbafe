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
/// is the size of a send queue's basic block, 16 that of a receive of one piece.
constexpr std::array kKnown = {
    CostsOfDriver{"mlx4_", {{}, 64, {{}, 16}}},
    CostsOfDriver{"mlx5_", {{}, 64, {{}, 16}}},
    CostsOfDriver{"rxe", {{}, 1, {{}, 1}}},
    CostsOfDriver{"siw", {{}, 1, {{}, 1}}},
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
  constexpr std::size_t kOfAQueue = 3;
  std::array<std::uint32_t, 2 * kOfAQueue> numbers{0, 0, 1, 0, 0, 1};
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [stopped, error] = std::from_chars(next, end, numbers[i]);
    const bool may_be_last = (i + 1) % kOfAQueue == 0;
    const bool is_last = may_be_last && stopped == end;
    if (error != std::errc() || numbers[i] > kLargestCost ||
        (!is_last && (stopped == end || *stopped != ',' || i + 1 == numbers.size()))) {
      return failure("\"" + std::string(text) + "\" is not op_size,iov_size,alignment: three numbers up to " +
                     std::to_string(kLargestCost) + ", or six, of which the last three are for receives");
    }
    if (is_last) {
      break;
    }
    next = stopped + 1;
  }
  for (std::size_t i = 0; i < numbers.size(); i += kOfAQueue) {
    if (numbers[i + 2] == 0) {
      return failure("\"" + std::string(text) + "\" has an alignment of 0: it is 1 or more");
    }
    if (numbers[i] == 0 && numbers[i + 1] != 0) {
      return failure("\"" + std::string(text) + "\" has entries of one size (op_size 0), so iov_size must be 0 too");
    }
  }
  return DeviceCosts{{numbers[0], numbers[1]}, numbers[2], {{numbers[3], numbers[4]}, numbers[5]}};
}

}  // namespace fabric
