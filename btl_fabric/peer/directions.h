// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread has been told of an endpoint's connections, and has answered.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cpc/core/cpc.h"

namespace fabric {

/// One connection for each direction: kBoth, or with X queues one or both of the others.
class Directions {
 public:
  static constexpr std::array kAll{cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming};

  /// The progress thread knows of it.
  [[nodiscard]] bool has(cpc::Direction direction) const noexcept { return at(direction) != Told::kNothing; }
  /// Asked for, by us or by the peer.
  void open(cpc::Direction direction) noexcept {
    if (!has(direction)) {
      at(direction) = Told::kOpen;
    }
  }
  /// It is open, and Close has not been said.
  [[nodiscard]] bool is_open(cpc::Direction direction) const noexcept { return at(direction) == Told::kOpen; }
  /// Close has been said.
  void close(cpc::Direction direction) noexcept { at(direction) = Told::kClose; }
  /// Close is answered.
  void flushed(cpc::Direction direction) noexcept { at(direction) = Told::kFlushed; }
  [[nodiscard]] bool is_flushed(cpc::Direction direction) const noexcept { return at(direction) == Told::kFlushed; }
  /// The progress thread knows of it no more.
  void forget(cpc::Direction direction) noexcept { at(direction) = Told::kNothing; }
  /// Nothing is open, and every Close answered.
  [[nodiscard]] bool all_flushed() const noexcept {
    return std::all_of(told_.begin(), told_.end(),
                       [](Told told) { return told == Told::kNothing || told == Told::kFlushed; });
  }

 private:
  enum class Told : std::uint8_t { kNothing, kOpen, kClose, kFlushed };
  [[nodiscard]] Told at(cpc::Direction direction) const noexcept { return told_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] Told& at(cpc::Direction direction) noexcept { return told_[static_cast<std::size_t>(direction)]; }

  std::array<Told, kAll.size()> told_{};
};

}  // namespace fabric
