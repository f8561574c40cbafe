// SPDX-License-Identifier: BSD-3-Clause
//
// Prints contrib/docs/states.md from the three tables of connection set-up. contrib/docs/update-readme puts it there.
#include <cstdio>
#include <string>
#include <string_view>

#include "btl_fabric/peer/endpoint_table.h"
#include "cpc/core/connection_table.h"
#include "cpc/queue_pairs/xrc_sender_table.h"

namespace {

using namespace fabric::cpc;

template <class E>
std::string names(const detail::Set<E>& set, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    if (const E one = static_cast<E>(i); set.has(one)) {
      all.append(all.empty() ? "" : ", ").append(to_string(one));
    }
  }
  return all;
}

std::string text_of(const detail::When& when) {
  std::string all;
  for (std::size_t i = 0; i < kGuards; ++i) {
    if ((when.care >> i & 1U) != 0) {
      all.append(all.empty() ? "" : ", ")
          .append((when.want >> i & 1U) != 0 ? "" : "not ")
          .append(detail::kGuardNames[i]);
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

void print_rows(Outcome outcome) {
  for (const detail::Row& row : detail::kTable) {
    if (row.step.outcome != outcome) {
      continue;
    }
    std::string line = "| " + names(row.states, kStates) + " | " + names(row.events, kEvents) + " | ";
    if (outcome != Outcome::kIgnored) {
      line += text_of(row.when) + " | ";
    }
    if (outcome == Outcome::kTransition) {
      line.append(to_string(row.step.next)).append(" | ").append(text_of_actions(row.step.actions));
    } else {
      line.append(row.step.why);
    }
    print(line + " |");
  }
}

/// An arrow for each pair of states between which rows lead, with their events. Rows that stay in their state are left
/// to the table.
void print_diagram() {
  print("```mermaid");
  print("stateDiagram-v2");
  print("  [*] --> Closed");
  for (std::size_t from = 0; from < kStates; ++from) {
    for (std::size_t to = 0; to < kStates; ++to) {
      if (from == to) {
        continue;
      }
      std::string events;
      for (std::size_t event = 0; event < kEvents; ++event) {
        for (const detail::Row& row : detail::kTable) {
          if (row.step.outcome == Outcome::kTransition && row.states.has(static_cast<State>(from)) &&
              row.events.has(static_cast<Event>(event)) && row.step.next == static_cast<State>(to)) {
            events.append(events.empty() ? "" : ", ").append(to_string(static_cast<Event>(event)));
            break;
          }
        }
      }
      if (!events.empty()) {
        print("  " + std::string(to_string(static_cast<State>(from))) + " --> " +
              std::string(to_string(static_cast<State>(to))) + ": " + events);
      }
    }
  }
  print("```");
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
  print_diagram();
  print("\n### Transitions\n");
  print("| state | event | if | next state | actions |\n|---|---|---|---|---|");
  print_rows(Outcome::kTransition);
  print("\n### Ignored\n");
  print("| state | event | because |\n|---|---|---|");
  print_rows(Outcome::kIgnored);
  print("\n### Protocol errors\n");
  print("The next state is Closing; the actions are " +
        text_of_actions(detail::error(State::kClosed, Event::kLocalError, "").step.actions) + ".\n");
  print("| state | event | if | because |\n|---|---|---|---|");
  print_rows(Outcome::kProtocolError);
}

template <class E>
std::string names(const fabric::EnumSet<E>& set, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    if (const E one = static_cast<E>(i); set.has(one)) {
      all.append(all.empty() ? "" : ", ").append(to_string(one));
    }
  }
  return all;
}

std::string text_of(const fabric::endpoint_detail::When& when) {
  std::string all;
  for (std::size_t i = 0; i < fabric::kEndpointGuards; ++i) {
    if ((when.care >> i & 1U) != 0) {
      all.append(all.empty() ? "" : ", ")
          .append((when.want >> i & 1U) != 0 ? "" : "not ")
          .append(fabric::endpoint_detail::kGuardNames[i]);
    }
  }
  return all;
}

void print_endpoint_rows(fabric::EndpointOutcome outcome) {
  for (const fabric::endpoint_detail::Row& row : fabric::endpoint_detail::kTable) {
    if (row.step.outcome != outcome) {
      continue;
    }
    std::string line = "| " + names(row.states, fabric::kEndpointStates) + " | " +
                       names(row.events, fabric::kEndpointEvents) + " | " + text_of(row.when) + " | ";
    if (outcome == fabric::EndpointOutcome::kTransition) {
      line.append(to_string(row.step.next)).append(" | ").append(text_of_actions(row.step.actions));
    } else {
      line.append(row.step.why);
    }
    print(line + " |");
  }
}

void print_endpoints() {
  print("\n## Endpoints\n");
  print(
      "The main thread's half: [btl_fabric/peer/endpoint_table.h](../../btl_fabric/peer/endpoint_table.h) says how it is "
      "meant, and");
  print("[endpoint_states.h](../../btl_fabric/peer/endpoint_states.h) what states, events and actions are.\n");
  print("```mermaid\nstateDiagram-v2\n  [*] --> Idle");
  for (std::size_t from = 0; from < fabric::kEndpointStates; ++from) {
    for (std::size_t to = 0; to < fabric::kEndpointStates; ++to) {
      std::string events;
      for (std::size_t event = 0; event < fabric::kEndpointEvents && from != to; ++event) {
        const auto what = static_cast<fabric::EndpointEvent>(event);
        for (const fabric::endpoint_detail::Row& row : fabric::endpoint_detail::kTable) {
          if (row.step.outcome == fabric::EndpointOutcome::kTransition &&
              row.states.has(static_cast<fabric::EndpointState>(from)) && row.events.has(what) &&
              row.step.next == static_cast<fabric::EndpointState>(to)) {
            events.append(events.empty() ? "" : ", ").append(to_string(what));
            break;
          }
        }
      }
      if (!events.empty()) {
        print("  " + std::string(to_string(static_cast<fabric::EndpointState>(from))) + " --> " +
              std::string(to_string(static_cast<fabric::EndpointState>(to))) + ": " + events);
      }
    }
  }
  print("```\n\n### Transitions\n");
  print("| state | event | if | next state | actions |\n|---|---|---|---|---|");
  print_endpoint_rows(fabric::EndpointOutcome::kTransition);
  print("\n### Ignored\n");
  print("| state | event | if | because |\n|---|---|---|---|");
  print_endpoint_rows(fabric::EndpointOutcome::kIgnored);
  print("\n### Protocol errors\n");
  print("The next state is Failed; the actions are Report, FailAll, CloseAll.\n");
  print("| state | event | if | because |\n|---|---|---|---|");
  print_endpoint_rows(fabric::EndpointOutcome::kProtocolError);
}

const char* line_text(sender_detail::Line line) {
  switch (line) {
    case sender_detail::Line::kAny:
      return "";
    case sender_detail::Line::kWaiting:
      return "somebody is in line";
    case sender_detail::Line::kEmpty:
      return "nobody is in line";
  }
  return "?";
}

void print_senders() {
  print("\n## Shared senders\n");
  print(
      "The send queue pair that all connections of X queues to one node share: "
      "[cpc/queue_pairs/xrc_sender_table.h](../../cpc/queue_pairs/xrc_sender_table.h).\n");
  print("```mermaid\nstateDiagram-v2\n  [*] --> Unconnected");
  for (const sender_detail::SenderRow& row : sender_detail::kSenderTable) {
    if (row.state != row.step.next) {
      const std::string condition = line_text(row.line);
      print("  " + std::string(to_string(row.state)) + " --> " + std::string(to_string(row.step.next)) + ": " +
            std::string(to_string(row.event)) + (condition.empty() ? "" : ", " + condition));
    }
  }
  print("```\n");
  print("| state | event | if | next state | actions |\n|---|---|---|---|---|");
  for (const sender_detail::SenderRow& row : sender_detail::kSenderTable) {
    if (row.step.outcome == SenderOutcome::kTransition) {
      print("| " + std::string(to_string(row.state)) + " | " + std::string(to_string(row.event)) + " | " +
            line_text(row.line) + " | " + std::string(to_string(row.step.next)) + " | " +
            text_of_actions(row.step.actions) + " |");
    }
  }
  print("\n### Impossible\n");
  print("| state | event | because |\n|---|---|---|");
  for (const sender_detail::SenderRow& row : sender_detail::kSenderTable) {
    if (row.step.outcome == SenderOutcome::kImpossible) {
      print("| " + std::string(to_string(row.state)) + " | " + std::string(to_string(row.event)) + " | " +
            std::string(row.step.why) + " |");
    }
  }
}

}  // namespace

int main() {
  print("# The states of a connection\n");
  print("<!-- Generated by contrib/docs/print_states.cc: run make update-readme instead of editing. -->\n");
  print_connections();
  print_endpoints();
  print_senders();
}
