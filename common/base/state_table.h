// SPDX-License-Identifier: BSD-3-Clause
//
// State machines as tables. A row says what an event leads to in a state, under a condition on guards; a *cell* is a
// state with an event. A table is checked when its header is compiled: every cell, under all guards, has exactly one row.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "common/base/enum_set.h"

namespace fabric {

/// What an event comes to.
enum class Outcome : std::uint8_t {
  kTransition,
  kIgnored,        ///< The state stays and nothing is done; `why` says why that is right.
  kProtocolError,  ///< Somebody broke the rules; `why` names the rule.
};

/// A fact that chooses between the rows of one cell: a bool of the struct `Facts`. At most 32; the place of one in its list
/// is the bit that stands for it.
template <class Facts>
struct Guard {
  bool Facts::*fact;
  std::string_view name;  ///< for texts: "time left"
};
template <class Facts, std::size_t kGuards>
using GuardList = std::array<Guard<Facts>, kGuards>;

/// The bits of the guards that hold.
template <class Facts, std::size_t kGuards>
[[nodiscard]] constexpr unsigned guard_bits(const GuardList<Facts, kGuards>& list, const Facts& facts) noexcept {
  unsigned bits = 0;
  for (std::size_t i = 0; i < kGuards; ++i) {
    bits |= facts.*list[i].fact ? 1U << i : 0U;
  }
  return bits;
}

/// A condition on guards: those in `care` must be as in `want`.
struct When {
  unsigned care = 0;  ///< bits as in guard_bits()
  unsigned want = 0;
  [[nodiscard]] constexpr bool holds(unsigned guards) const noexcept { return (guards & care) == want; }
};
inline constexpr When kAlways{};

/// That one guard holds.
template <class Facts, std::size_t kGuards>
[[nodiscard]] consteval When when(const GuardList<Facts, kGuards>& list, bool Facts::*fact) {
  for (std::size_t i = 0; i < kGuards; ++i) {
    if (list[i].fact == fact) {
      return {1U << i, 1U << i};
    }
  }
  throw "the list does not have this guard";
}
/// That one guard does not hold: `when` has only one.
[[nodiscard]] constexpr When operator!(When when) noexcept {
  return {when.care, when.want ^ when.care};
}
[[nodiscard]] constexpr When operator&&(When a, When b) noexcept {
  return {a.care | b.care, a.want | b.want};
}

/// The types of a table, and what makes its rows. A step has at most `kMaxActions` actions; Action{} ends a list of them.
template <class State, class Event, class Action, std::size_t kMaxActions>
struct StateTable {
  using Actions = std::array<Action, kMaxActions>;

  /// What follows from an event.
  struct Step {
    Outcome outcome = Outcome::kIgnored;
    State next{};
    Actions actions{};
    std::string_view why;
    [[nodiscard]] constexpr bool does(Action action) const noexcept {
      return std::find(actions.begin(), actions.end(), action) != actions.end();
    }
  };

  struct Row {
    EnumSet<State> states;
    EnumSet<Event> events;
    When when;
    Outcome outcome;
    std::optional<State> next;  ///< none: the state stays
    Actions actions{};
    std::string_view why{};
    [[nodiscard]] constexpr bool is_of(State state, Event event) const noexcept {
      return states.has(state) && events.has(event);
    }
    [[nodiscard]] constexpr bool does(Action action) const noexcept {
      return std::find(actions.begin(), actions.end(), action) != actions.end();
    }
  };

  [[nodiscard]] static constexpr Row go(EnumSet<State> from, EnumSet<Event> events, When when,
                                        std::optional<State> next, std::initializer_list<Action> actions) noexcept {
    Row row{from, events, when, Outcome::kTransition, next};
    std::copy(actions.begin(), actions.end(), row.actions.begin());
    return row;
  }
  [[nodiscard]] static constexpr Row stay(EnumSet<State> states, EnumSet<Event> events, When when,
                                          std::initializer_list<Action> actions) noexcept {
    return go(states, events, when, std::nullopt, actions);
  }
  [[nodiscard]] static constexpr Row ignored(EnumSet<State> states, EnumSet<Event> events, std::string_view why,
                                             When when = kAlways) noexcept {
    return {states, events, when, Outcome::kIgnored, std::nullopt, {}, why};
  }
  /// What follows is the same for all of them: look_up() is told.
  [[nodiscard]] static constexpr Row error(EnumSet<State> states, EnumSet<Event> events, std::string_view why,
                                           When when = kAlways) noexcept {
    return {states, events, when, Outcome::kProtocolError, std::nullopt, {}, why};
  }

  /// What `event` leads to in `state`; `after_error` is what follows from a protocol error.
  template <class Rows>
  [[nodiscard]] static constexpr Step look_up(const Rows& rows, State state, Event event, unsigned guards,
                                              const Step& after_error) noexcept {
    for (const Row& row : rows) {
      if (row.is_of(state, event) && row.when.holds(guards)) {
        return row.outcome == Outcome::kProtocolError
                   ? Step{row.outcome, after_error.next, after_error.actions, row.why}
                   : Step{row.outcome, row.next.value_or(state), row.actions, row.why};
      }
    }
    return {Outcome::kIgnored, state, {}, "impossible guards"};
  }

  /// True if the rows of one cell leave no guards out and do not overlap. Guards that none of them asks for make no
  /// difference. `possible(guards, care)` tells if guards may be so, as far as they are in `care`.
  template <class Rows, class Possible>
  [[nodiscard]] static constexpr bool cell_is_complete(const Rows& rows, State state, Event event,
                                                       Possible possible) noexcept {
    unsigned care = 0;
    for (const Row& row : rows) {
      care |= row.is_of(state, event) ? row.when.care : 0U;
    }
    // Every subset of `care`, from all of it to none.
    for (unsigned guards = care;; guards = (guards - 1) & care) {
      const auto matches = std::count_if(
          rows.begin(), rows.end(), [&](const Row& row) { return row.is_of(state, event) && row.when.holds(guards); });
      if (possible(guards, care) && matches != 1) {
        return false;
      }
      if (guards == 0) {
        return true;
      }
    }
  }

  /// Every event in every state, under all guards that are possible, has exactly one row.
  template <class Rows, class Possible>
  [[nodiscard]] static constexpr bool is_complete(const Rows& rows, std::size_t states, std::size_t events,
                                                  Possible possible) noexcept {
    for (std::size_t state = 0; state < states; ++state) {
      for (std::size_t event = 0; event < events; ++event) {
        if (!cell_is_complete(rows, static_cast<State>(state), static_cast<Event>(event), possible)) {
          return false;
        }
      }
    }
    return true;
  }
};

}  // namespace fabric
