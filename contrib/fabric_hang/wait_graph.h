// SPDX-License-Identifier: BSD-3-Clause
//
// A graph of who waits for whom: its cycles, and those at the ends of its chains.
#pragma once

#include <cstddef>
#include <vector>

namespace fabric::hang {

class WaitGraph {
 public:
  explicit WaitGraph(std::size_t processes) : waits_for_(processes), held_up_(processes) {}

  void add(std::size_t who, std::size_t for_whom);
  [[nodiscard]] bool waits(std::size_t who) const { return !waits_for_[who].empty(); }

  /// One cycle of each set of processes that wait for each other, the shortest through its first process. Whoever waits for one of
  /// them is not in it.
  [[nodiscard]] std::vector<std::vector<std::size_t>> cycles() const;
  /// All that wait for it, directly or not, in order; not itself.
  [[nodiscard]] std::vector<std::size_t> held_up_by(std::size_t whom) const;

 private:
  using Edges = std::vector<std::vector<std::size_t>>;
  [[nodiscard]] std::vector<std::size_t> shortest_cycle(std::size_t through) const;
  /// Where edges lead from it, in order of numbers; it is among them only if one leads back.
  [[nodiscard]] static std::vector<std::size_t> reached(const Edges& edges, std::size_t from);

  Edges waits_for_;
  Edges held_up_;  ///< the same edges, the other way
};

}  // namespace fabric::hang
