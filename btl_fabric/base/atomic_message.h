// SPDX-License-Identifier: BSD-3-Clause
//
// Atomics that go as messages and are executed by the target's processor, for devices without atomics.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/base/wire.h"

namespace fabric {

/// The operations; the values are Open MPI's mca_btl_base_atomic_op_t, and 0 is compare and swap. They travel.
enum class AtomicOp : std::uint16_t {
  kCompareSwap = 0,
  kAdd = 0x01,
  kAnd = 0x11,
  kOr = 0x12,
  kXor = 0x14,
  kLogicalAnd = 0x15,
  kLogicalOr = 0x16,
  kLogicalXor = 0x17,
  kSwap = 0x1a,
  // 0x20 and 0x21, minimum and maximum, are refused: the message does not say whether integers are signed.
};

/// What follows the packet header: where, what, and the place that the reply names.
struct AtomicMessage {
  std::uint32_t place = 0;
  std::uint32_t serial = 0;
  std::uint64_t address = 0;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint32_t rkey = 0;
  std::uint16_t op = 0;
  bool is_32_bit = false;
  bool operator==(const AtomicMessage&) const = default;

  static constexpr std::size_t kSize = 40;

  void write(std::byte* to) const noexcept {
    store_be(to, place);
    store_be(to + 4, serial);
    store_be(to + 8, address);
    store_be(to + 16, operand);
    store_be(to + 24, compare);
    store_be(to + 32, rkey);
    store_be(to + 36, op);
    store_be(to + 38, static_cast<std::uint16_t>(is_32_bit ? 1 : 0));
  }
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length != kSize || load_be<std::uint16_t>(from + 38) > 1) {
      return false;
    }
    place = load_be<std::uint32_t>(from);
    serial = load_be<std::uint32_t>(from + 4);
    address = load_be<std::uint64_t>(from + 8);
    operand = load_be<std::uint64_t>(from + 16);
    compare = load_be<std::uint64_t>(from + 24);
    rkey = load_be<std::uint32_t>(from + 32);
    op = load_be<std::uint16_t>(from + 36);
    is_32_bit = load_be<std::uint16_t>(from + 38) != 0;
    return true;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return is_32_bit ? 4 : 8; }
};

struct AtomicReply {
  std::uint32_t place = 0;
  std::uint32_t serial = 0;
  std::uint64_t value = 0;  ///< what was there before
  bool done = false;        ///< false: refused
  bool operator==(const AtomicReply&) const = default;

  static constexpr std::size_t kSize = 24;

  void write(std::byte* to) const noexcept {
    store_be(to, place);
    store_be(to + 4, serial);
    store_be(to + 8, value);
    store_be(to + 16, std::uint64_t{done ? 1U : 0U});
  }
  [[nodiscard]] bool read(const std::byte* from, std::size_t length) noexcept {
    if (length != kSize || load_be<std::uint64_t>(from + 16) > 1) {
      return false;
    }
    place = load_be<std::uint32_t>(from);
    serial = load_be<std::uint32_t>(from + 4);
    value = load_be<std::uint64_t>(from + 8);
    done = load_be<std::uint64_t>(from + 16) != 0;
    return true;
  }
};

/// The result of an operation on integers of type T; nothing if there is no such operation.
template <class T>
[[nodiscard]] constexpr std::optional<T> result_of(AtomicOp op, T old, T operand, T compare) noexcept {
  switch (op) {
    case AtomicOp::kCompareSwap:
      return old == compare ? operand : old;
    case AtomicOp::kAdd:
      return static_cast<T>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(operand));
    case AtomicOp::kAnd:
      return static_cast<T>(old & operand);
    case AtomicOp::kOr:
      return static_cast<T>(old | operand);
    case AtomicOp::kXor:
      return static_cast<T>(old ^ operand);
    case AtomicOp::kLogicalAnd:
      return static_cast<T>(old != 0 && operand != 0);
    case AtomicOp::kLogicalOr:
      return static_cast<T>(old != 0 || operand != 0);
    case AtomicOp::kLogicalXor:
      return static_cast<T>((old != 0) != (operand != 0));
    case AtomicOp::kSwap:
      return operand;
  }
  return std::nullopt;
}

/// Executes an operation on memory that is there, writable and aligned. The value before; nothing if there is no such
/// operation. Atomic for this process's threads and for processes that share the memory.
template <class T>
[[nodiscard]] std::optional<T> execute_atomic(T& target, AtomicOp op, T operand, T compare) noexcept {
  const std::atomic_ref<T> memory(target);
  T old = memory.load(std::memory_order_acquire);
  while (true) {
    const std::optional<T> next = result_of<T>(op, old, operand, compare);
    if (!next) {
      return std::nullopt;
    }
    if (memory.compare_exchange_weak(old, *next, std::memory_order_acq_rel)) {
      return old;
    }
  }
}

}  // namespace fabric
