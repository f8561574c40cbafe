// SPDX-License-Identifier: BSD-3-Clause
//
// Breadth-first search through all that can become of a small world: what the model checkers have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fabric::model {

/// `World` is compared by its bytes, so it has no padding. `Move` says how a world was reached, for the reader of a fault; its
/// `what` is empty in `Move()`, which is none.
template <class World, class Move>
class Search {
 public:
  /// How many worlds have been seen.
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 protected:
  /// Looks at `start` and at every world that is visited from there, each once: `expand(world)` visits what may come next.
  /// Ends with the first fault, or with nothing.
  template <class Expand>
  std::optional<std::string> search(const World& start, Expand expand) {
    visit(start);
    while (!open_.empty() && !fault_) {
      const World world = open_.front();
      open_.pop();
      here_ = &*seen_.find(bytes_of(world));
      moves_ = 0;
      move_ = {};
      expand(world);
    }
    return fault_;
  }

  /// The world at hand may become this one, by `move_`.
  void visit(const World& world) {
    ++moves_;
    if (seen_.emplace(bytes_of(world), Origin{here_, move_}).second) {
      open_.push(world);
    }
  }
  /// Nothing has been visited yet from the world at hand.
  [[nodiscard]] bool is_quiet() const { return moves_ == 0; }
  /// Makes moves that are a choice, not an obligation: a world is quiet without them.
  template <class Choose>
  void choose(Choose moves_of_choice) {
    const std::size_t moves = moves_;
    moves_of_choice();
    moves_ = moves;
  }

  void found(std::string fault) {
    if (!fault_) {
      fault_ = std::move(fault);
    }
  }
  [[nodiscard]] bool has_found() const { return fault_.has_value(); }
  /// From the start to the world at hand and, if there is one, by `move_`. The shortest way, as the search goes breadth first.
  [[nodiscard]] std::vector<Move> way() const {
    std::vector<Move> moves;
    if (!move_.what.empty()) {
      moves.push_back(move_);
    }
    for (const Seen* one = here_; one != nullptr && one->second.parent != nullptr; one = one->second.parent) {
      moves.push_back(one->second.move);
    }
    return {moves.rbegin(), moves.rend()};
  }

  Move move_;  ///< the one that is being made

 private:
  using Bytes = std::array<char, sizeof(World)>;
  struct Hash {
    std::size_t operator()(const Bytes& bytes) const {
      return std::hash<std::string_view>{}({bytes.data(), bytes.size()});
    }
  };
  struct Origin;
  using Seen = std::pair<const Bytes, Origin>;
  /// How a world was reached first.
  struct Origin {
    const Seen* parent = nullptr;
    Move move;
  };

  static Bytes bytes_of(const World& world) {
    Bytes bytes;
    std::memcpy(bytes.data(), &world, sizeof world);
    return bytes;
  }

  std::unordered_map<Bytes, Origin, Hash> seen_;
  std::queue<World> open_;
  const Seen* here_ = nullptr;  ///< the world at hand
  std::size_t moves_ = 0;       ///< made from it
  std::optional<std::string> fault_;
};

}  // namespace fabric::model
