// SPDX-License-Identifier: BSD-3-Clause
//
// Who tries whom: in each round every process has one partner, and over all rounds each pair comes once (a round-robin tournament
// by the circle method). With as few rounds as one likes each process has had so many different partners.
#pragma once

#include <cstdint>
#include <optional>

namespace fabric::doctor {

/// Rounds after which every pair has come.
[[nodiscard]] constexpr std::uint32_t rounds_for_all(std::uint32_t size) noexcept {
  return size < 2 ? 0 : size + size % 2 - 1;
}

/// The partner of `rank` in a round, from 0 to rounds_for_all(size) - 1; nothing: it rests.
[[nodiscard]] constexpr std::optional<std::uint32_t> partner_of(std::uint32_t rank, std::uint32_t size,
                                                                std::uint32_t round) noexcept {
  const std::uint32_t turning = rounds_for_all(size);  // the last of an even number stands still
  const std::uint32_t sum = (turning - round % turning) % turning;
  std::uint32_t partner = 0;
  if (rank == turning) {
    partner = sum % 2 == 0 ? sum / 2 : (sum + turning) / 2;
  } else {
    partner = (sum + turning - rank) % turning;
    partner = partner == rank ? turning : partner;
  }
  return partner < size ? std::optional(partner) : std::nullopt;
}

}  // namespace fabric::doctor
