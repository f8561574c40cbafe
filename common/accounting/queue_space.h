// SPDX-License-Identifier: BSD-3-Clause
//
// Room in work queues, counted in bytes. Devices differ in what an operation takes: some have entries of one size,
// others use more of the queue the more pieces of memory or inline bytes an operation has. Whoever counts entries alone
// must assume the largest operation every time; counting bytes tells what really fits. Entries of one size are the
// special case in which every operation takes the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace fabric {

/// What an operation costs on a device, bytes. All zero: the device has entries of one size.
struct OperationCosts {
  std::uint32_t op_size = 0;   ///< the operation itself, remote address and operands included
  std::uint32_t iov_size = 0;  ///< each piece of memory
  [[nodiscard]] constexpr bool fixed_entries() const noexcept { return op_size == 0; }
  bool operator==(const OperationCosts&) const = default;
};

/// What a queue is made for.
struct QueueAttributes {
  std::uint64_t size = 0;         ///< bytes
  std::uint32_t iov_limit = 1;    ///< most pieces of memory of an operation
  std::uint32_t alignment = 1;    ///< every operation starts at a multiple of this
  std::uint32_t inject_size = 0;  ///< most inline bytes of an operation
  std::uint32_t iov_least = 0;    ///< fewest pieces of memory of an operation
  bool operator==(const QueueAttributes&) const = default;
};

/// What operations cost on one kind of queue, and where they start.
struct QueueCosts {
  OperationCosts operation;
  std::uint32_t alignment = 1;
  bool operator==(const QueueCosts&) const = default;
};

/// The costs of a device: of its send queues, and of its receive queues, whose entries have a layout of their own, as there
/// is no remote address and nothing inline in a receive.
struct DeviceCosts {
  OperationCosts operation;
  std::uint32_t alignment = 1;
  QueueCosts receive{};
  bool operator==(const DeviceCosts&) const = default;
};

/// The costs on the device of that name. From a small table; a device that is not in it has entries of one size, which
/// is safe everywhere, because that is how verbs counts when it makes a queue.
[[nodiscard]] DeviceCosts device_costs(std::string_view device_name) noexcept;

/// Reads "op_size,iov_size,alignment", the form of the queue_costs parameter: of send queues, and in three more numbers of
/// receive queues. Without these, receives have entries of one size.
[[nodiscard]] Result<DeviceCosts> parse_costs(std::string_view text);

/// A queue and its costs: how many bytes operations need, how many fit.
class QueueSpace {
 public:
  constexpr QueueSpace() = default;
  constexpr QueueSpace(const OperationCosts& costs, const QueueAttributes& attributes) noexcept
      : costs_(costs), attributes_(attributes) {}

  /// The smallest queue that holds `count` operations of any kind that its limits allow.
  [[nodiscard]] static constexpr QueueSpace for_operations(std::uint64_t count, const DeviceCosts& costs,
                                                           std::uint32_t iov_limit,
                                                           std::uint32_t inject_size) noexcept {
    QueueAttributes attributes{0, iov_limit, costs.alignment, inject_size};
    attributes.size = QueueSpace(costs.operation, attributes).largest() * count;
    return {costs.operation, attributes};
  }
  /// The smallest receive queue that holds `count` receives of `pieces` pieces of memory, which is what all have.
  [[nodiscard]] static constexpr QueueSpace for_receives(std::uint64_t count, const DeviceCosts& costs,
                                                         std::uint32_t pieces = 1) noexcept {
    QueueAttributes attributes{0, pieces, costs.receive.alignment, 0, pieces};
    attributes.size = QueueSpace(costs.receive.operation, attributes).largest() * count;
    return {costs.receive.operation, attributes};
  }

  [[nodiscard]] constexpr const QueueAttributes& attributes() const noexcept { return attributes_; }
  [[nodiscard]] constexpr const OperationCosts& costs() const noexcept { return costs_; }
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return attributes_.size; }

  /// Bytes of an operation with `pieces` pieces of memory.
  [[nodiscard]] constexpr std::uint64_t needed(std::uint32_t pieces) const noexcept {
    return costs_.fixed_entries() ? attributes_.alignment
                                  : align(costs_.op_size + std::uint64_t{costs_.iov_size} * pieces);
  }
  /// Bytes of an operation that carries its data inline.
  [[nodiscard]] constexpr std::uint64_t needed_inline(std::uint32_t bytes) const noexcept {
    return costs_.fixed_entries() ? attributes_.alignment : align(std::uint64_t{costs_.op_size} + bytes);
  }

  /// Bytes of the largest operation that the limits allow, and of the smallest there is.
  [[nodiscard]] constexpr std::uint64_t largest() const noexcept {
    const std::uint64_t pieces = needed(attributes_.iov_limit);
    const std::uint64_t injected = needed_inline(attributes_.inject_size);
    return pieces > injected ? pieces : injected;
  }
  [[nodiscard]] constexpr std::uint64_t smallest() const noexcept { return needed(attributes_.iov_least); }

  /// Operations of the largest size that an empty queue holds.
  [[nodiscard]] constexpr std::uint64_t operations() const noexcept { return size() / largest(); }
  /// Operations of the smallest size that it holds: no mix of operations is more, so a queue made with this many
  /// entries is never overrun.
  [[nodiscard]] constexpr std::uint64_t entries() const noexcept { return size() / smallest(); }
  /// Entries of it, at least `least`, that two operations of any size fit in.
  [[nodiscard]] constexpr std::uint64_t few_entries(std::uint64_t least) const noexcept {
    const std::uint64_t two = (2 * largest() + smallest() - 1) / smallest();
    return std::min(entries(), std::max(least, two));
  }

 private:
  [[nodiscard]] constexpr std::uint64_t align(std::uint64_t bytes) const noexcept {
    return (bytes + attributes_.alignment - 1) / attributes_.alignment * attributes_.alignment;
  }

  OperationCosts costs_;
  QueueAttributes attributes_;
};

}  // namespace fabric
