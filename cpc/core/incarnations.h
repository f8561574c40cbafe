// SPDX-License-Identifier: BSD-3-Clause
//
// The numbers that tell apart the connections which a pair of ports has one after the other, as one side knows them. A
// REQUEST takes the next number when it is written, so a number that nobody has seen is never in anybody's way.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fabric::cpc {

/// Of one ConnectionKey. 0 is no incarnation.
class Incarnations {
 public:
  /// For a REQUEST of ours: newer than all that were seen.
  [[nodiscard]] std::uint32_t next() noexcept { return ++newest_; }
  /// A message names it.
  void note(std::uint32_t incarnation) noexcept { newest_ = std::max(newest_, incarnation); }
  /// Its connection has ended: no REQUEST of it, or of an older one, is accepted any more.
  void end(std::uint32_t incarnation) noexcept {
    note(incarnation);
    ended_ = std::max(ended_, incarnation);
  }
  [[nodiscard]] bool has_ended(std::uint32_t incarnation) const noexcept { return incarnation <= ended_; }
  [[nodiscard]] std::uint32_t newest() const noexcept { return newest_; }

 private:
  std::uint32_t newest_ = 0;
  std::uint32_t ended_ = 0;
};

}  // namespace fabric::cpc
