// SPDX-License-Identifier: BSD-3-Clause
//
// What a world looks like, and what happens to it, in words.
#include "test/model/world.h"

namespace fabric::model {

std::string World::states() const {
  std::string text;
  for (std::uint8_t rank = 0; rank < options_.processes; ++rank) {
    text += text.empty() ? "[" : " [";
    if (at(rank) == nullptr) {
      text += "gone";
    }
    bool first = true;
    for (std::uint8_t peer = 0; peer < options_.processes && at(rank) != nullptr; ++peer) {
      for (const cpc::Direction direction : Process::kDirections) {
        for (const cpc::Connection* one : at(rank)->connections(peer, direction)) {
          if (one != nullptr) {
            text.append(first ? "" : " ").append(direction_prefix(direction)).append(to_string(one->state()));
            first = false;
          }
        }
      }
    }
    text += "]";
  }
  return text;
}

std::string World::name(const Choice& choice) const {
  const auto number = [](std::uint8_t value) { return std::to_string(int{value}); };
  const std::string process = "process " + number(choice.a);
  std::string text;
  switch (choice.kind) {
    case Kind::kSend:
      text = process + " sends a message to " + number(choice.b);
      break;
    case Kind::kClose:
      text = process + " closes its connection with " + number(choice.b);
      break;
    case Kind::kRest:
      text = process + " asks " + number(choice.b) + " whether their link may go";
      break;
    case Kind::kLeave:
      text = process + " says goodbye to all";
      break;
    case Kind::kGoodbyeTimer:
      text = process + " has waited for its goodbyes for long enough";
      break;
    case Kind::kExit:
      text = process + " exits";
      break;
    case Kind::kDie:
      text = process + " dies with its host";
      break;
    case Kind::kUpcall:
      text = process + ": main thread hears " + at(choice.a)->next_upcall();
      break;
    case Kind::kCommand:
      text = process + ": progress thread hears " + at(choice.a)->next_command();
      break;
    case Kind::kTimer: {
      const cpc::Connection* const connection =
          at(choice.a)->connection(choice.b, static_cast<cpc::Direction>(choice.c & ~kFails));
      text = process + ": " + std::string(to_string(timer_event_of(*connection)));
      break;
    }
    case Kind::kTurn:
      text = process + ": its connection to " + number(choice.b) + " gets its turn at the sender";
      break;
    case Kind::kLeaves:
      text = "channel " + number(choice.a) + ": REQUEST leaves";
      break;
    case Kind::kMessage: {
      const Wire::Side& side = network_.wire(choice.a).sides[choice.b];
      text = "channel " + number(choice.a) + ": process " + number(side.process) + " gets " +
             to_string(side.incoming.front().header.type);
      break;
    }
    case Kind::kLost:
      text = "channel " + number(choice.a) + ": process " + number(network_.wire(choice.a).sides[choice.b].process) +
             " hears of its end";
      break;
    case Kind::kYield:
      text = "channel " + number(choice.a) + " yields";
      break;
    case Kind::kBreak:
      text = "channel " + number(choice.a) + " breaks";
      break;
    case Kind::kPacket:
      text = "process " + number(fabric_.find(choice.a)->process) + ": a packet on queue pair " + number(choice.a) +
             " goes";
      break;
    case Kind::kHangup:
      text = "queue pair " + number(choice.a) + " hears of the end of its peer's";
      break;
    case Kind::kFailure:
      text =
          "queue pair " + number(choice.a) + " breaks" + (choice.b != 0 ? ", when its oldest packet has arrived" : "");
      break;
  }
  return (choice.c & kFails) != 0 ? text + ", and a verbs call fails" : text;
}

}  // namespace fabric::model
