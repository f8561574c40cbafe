// SPDX-License-Identifier: BSD-3-Clause
//
// What the progress thread has been told of an endpoint's connections, and has answered.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cpc/core/cpc.h"

namespace fabric {

/// How far a connection is, as far as both threads have said.
enum class Told : std::uint8_t {
  kNothing,
  kOpen,     ///< asked for, by us or by the peer
  kEnding,   ///< its Flushing will come
  kFlushed,  ///< Destroy may be said
};

/// One connection for each direction, the newest: kBoth, or with X queues one or both of the others.
class Directions {
 public:
  static constexpr std::array kAll{cpc::Direction::kBoth, cpc::Direction::kOutgoing, cpc::Direction::kIncoming};

  /// The progress thread knows of it.
  [[nodiscard]] bool has(cpc::Direction direction) const noexcept { return told(direction) != Told::kNothing; }
  [[nodiscard]] bool has(cpc::Direction direction, cpc::LinkNumber link) const noexcept {
    return has(direction) && at(direction).link == link;
  }
  [[nodiscard]] Told told(cpc::Direction direction) const noexcept { return at(direction).told; }
  [[nodiscard]] cpc::LinkNumber link(cpc::Direction direction) const noexcept { return at(direction).link; }
  /// It is open, and it is not known to end.
  [[nodiscard]] bool is_open(cpc::Direction direction) const noexcept { return told(direction) == Told::kOpen; }

  void open(cpc::Direction direction, cpc::LinkNumber link) noexcept { at(direction) = {Told::kOpen, link}; }
  /// Close has been said, or need not be.
  void end(cpc::Direction direction) noexcept { at(direction).told = Told::kEnding; }
  void flushed(cpc::Direction direction) noexcept { at(direction).told = Told::kFlushed; }
  /// The progress thread knows of it no more.
  void forget(cpc::Direction direction) noexcept { at(direction) = {}; }
  /// Nothing is open, and every Close answered.
  [[nodiscard]] bool all_flushed() const noexcept {
    return std::all_of(all_.begin(), all_.end(),
                       [](const One& one) { return one.told == Told::kNothing || one.told == Told::kFlushed; });
  }

 private:
  struct One {
    Told told = Told::kNothing;
    cpc::LinkNumber link = 0;
  };
  [[nodiscard]] const One& at(cpc::Direction direction) const noexcept {
    return all_[static_cast<std::size_t>(direction)];
  }
  [[nodiscard]] One& at(cpc::Direction direction) noexcept { return all_[static_cast<std::size_t>(direction)]; }

  std::array<One, kAll.size()> all_{};
};

}  // namespace fabric
