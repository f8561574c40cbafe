// SPDX-License-Identifier: BSD-3-Clause
//
// Prints contrib/docs/states.md from the three tables of connection set-up. contrib/docs/update-readme puts it there.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "btl_fabric/peer/endpoint_table.h"
#include "cpc/core/connection_table.h"
#include "cpc/queue_pairs/xrc_sender_table.h"

namespace {

using namespace fabric;
using namespace fabric::cpc;

template <class E>
std::string names(const EnumSet<E>& set, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    if (const E one = static_cast<E>(i); set.has(one)) {
      all.append(all.empty() ? "" : ", ").append(to_string(one));
    }
  }
  return all;
}

template <class List>
std::string text_of(const When& when, const List& guards) {
  std::string all;
  for (std::size_t i = 0; i < guards.size(); ++i) {
    if ((when.care >> i & 1U) != 0) {
      all.append(all.empty() ? "" : ", ").append((when.want >> i & 1U) != 0 ? "" : "not ").append(guards[i].name);
    }
  }
  return all;
}

/// Everything but kNone, which ends the list.
template <class List>
std::string text_of_actions(const List& actions) {
  std::string all;
  for (const auto action : actions) {
    if (action != decltype(action){}) {
      all.append(all.empty() ? "" : ", ").append(to_string(action));
    }
  }
  return all;
}

void print(const std::string& line) {
  std::puts(line.c_str());
}

/// A table, and how many states and events it is about.
template <class State, class Event, class Rows, class GuardList>
struct Table {
  const Rows& rows;
  const GuardList& guards;
  const std::string& text_of_errors;
  std::size_t states;
  std::size_t events;

  void print_rows(Outcome outcome) const {
    for (const auto& row : rows) {
      if (row.outcome != outcome) {
        continue;
      }
      std::string line = "| " + names(row.states, states) + " | " + names(row.events, events) + " | " +
                         text_of(row.when, guards) + " | ";
      if (outcome == Outcome::kTransition) {
        line.append(row.next ? to_string(*row.next) : "the same").append(" | ").append(text_of_actions(row.actions));
      } else {
        line.append(row.why);
      }
      print(line + " |");
    }
  }

  [[nodiscard]] bool leads(State from, Event event, State to) const {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return row.outcome == Outcome::kTransition && row.is_of(from, event) && row.next == to;
    });
  }

  /// An arrow for each pair of states between which rows lead, with their events. Rows that stay in their state are left
  /// to the table.
  void print_diagram() const {
    print("```mermaid\nstateDiagram-v2\n  [*] --> " + std::string(to_string(State{})));
    for (std::size_t i = 0; i < states; ++i) {
      for (std::size_t j = 0; j < states; ++j) {
        const auto from = static_cast<State>(i);
        const auto to = static_cast<State>(j);
        std::string all;
        for (std::size_t event = 0; event < events && from != to; ++event) {
          if (const auto what = static_cast<Event>(event); leads(from, what, to)) {
            all.append(all.empty() ? "" : ", ").append(to_string(what));
          }
        }
        if (!all.empty()) {
          print("  " + std::string(to_string(from)) + " --> " + std::string(to_string(to)) + ": " + all);
        }
      }
    }
    print("```");
  }

  void print_all() const {
    print_diagram();
    print("\n### Transitions\n");
    print("| state | event | if | next state | actions |\n|---|---|---|---|---|");
    print_rows(Outcome::kTransition);
    if (has(Outcome::kIgnored)) {
      print("\n### Ignored\n");
      print("| state | event | if | because |\n|---|---|---|---|");
      print_rows(Outcome::kIgnored);
    }
    print("\n### Protocol errors\n");
    print(text_of_errors + "\n");
    print("| state | event | if | because |\n|---|---|---|---|");
    print_rows(Outcome::kProtocolError);
  }

  [[nodiscard]] bool has(Outcome outcome) const {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.outcome == outcome; });
  }
};

template <class State, class Event, class Rows, class GuardList>
void print_table(const Rows& rows, const GuardList& guards, const std::string& text_of_errors, std::size_t states,
                 std::size_t events) {
  Table<State, Event, Rows, GuardList>{rows, guards, text_of_errors, states, events}.print_all();
}

/// What follows from protocol errors.
template <class Step>
std::string text_of_errors(const Step& step) {
  return "The next state is " + std::string(to_string(step.next)) + "; the actions are " +
         text_of_actions(step.actions) + ".";
}

void print_connections() {
  print("## Connections\n");
  print(
      "The table is in [cpc/core/connection_table.h](../../cpc/core/connection_table.h), which says how it is meant; what "
      "states,");
  print(
      "events and actions are is in [cpc/core/connection_states.h](../../cpc/core/connection_states.h). Arrows from a state to "
      "itself");
  print("are left out of the diagram, and protocol errors, all of which lead to Closing.\n");
  print_table<State, Event>(detail::Rows::kAll, kGuardList, text_of_errors(detail::kAfterError), kStates, kEvents);
}

void print_endpoints() {
  print("\n## Endpoints\n");
  print(
      "The main thread's half: [btl_fabric/peer/endpoint_table.h](../../btl_fabric/peer/endpoint_table.h) says how it is "
      "meant, and");
  print("[endpoint_states.h](../../btl_fabric/peer/endpoint_states.h) what states, events and actions are.\n");
  print_table<EndpointState, EndpointEvent>(endpoint_detail::Rows::kAll, kEndpointGuardList,
                                            text_of_errors(endpoint_detail::kAfterError), kEndpointStates,
                                            kEndpointEvents);
}

void print_senders() {
  print("\n## Shared senders\n");
  print(
      "The send queue pair that all connections of X queues to one node share: "
      "[cpc/queue_pairs/xrc_sender_table.h](../../cpc/queue_pairs/xrc_sender_table.h).\n");
  print_table<SenderState, SenderEvent>(sender_detail::Rows::kAll, kSenderGuardList,
                                        "Each would be a fault of ours; an assertion finds it.", kSenderStates,
                                        kSenderEvents);
}

}  // namespace

int main() {
  print("# The states of a connection\n");
  print("<!-- Generated by contrib/docs/print_states.cc: run make update-readme instead of editing. -->\n");
  print_connections();
  print_endpoints();
  print_senders();
}
