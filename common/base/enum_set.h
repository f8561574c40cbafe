// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>

namespace fabric {

/// A set of the values of an enumeration with at most 32 of them, numbered from 0. For tables of states and events.
template <class E>
class EnumSet {
 public:
  constexpr EnumSet(E one) noexcept : bits_(bit(one)) {}  // NOLINT: a value stands for the set of it alone
  constexpr EnumSet(std::initializer_list<E> several) noexcept {
    for (const E one : several) {
      bits_ |= bit(one);
    }
  }
  [[nodiscard]] constexpr bool has(E one) const noexcept { return (bits_ & bit(one)) != 0; }

 private:
  static constexpr std::uint32_t bit(E one) noexcept { return std::uint32_t{1} << static_cast<unsigned>(one); }
  std::uint32_t bits_ = 0;
};

}  // namespace fabric
