// SPDX-License-Identifier: BSD-3-Clause
//
// One thing that may happen next in a world that a model checker explores. A run is a list of them, and can be repeated.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace fabric::model {

enum class Kind : std::uint8_t {
  // What the application does. `a`: which process.
  kSend,   ///< b: to which process
  kClose,  ///< b: the connection with which process
  kRest,   ///< b: the peer that it asks whether their link may go
  kLeave,  ///< its upper layer ends in order: goodbye is said to all, and then it exits
  kExit,
  kDie,
  // What the two threads of a process do
  kUpcall,        ///< its main thread hears the next upcall
  kCommand,       ///< its progress thread hears the next command
  kTimer,         ///< b: with which process, c: the direction of the connection whose timer is over
  kGoodbyeTimer,  ///< its goodbyes have been under way for long enough
  kTurn,          ///< b: with which process; its shared sender lets the connection go on
  // The network. `a`: which channel
  kLeaves,   ///< its REQUEST leaves the host of who opened it
  kMessage,  ///< b: the side that gets the next message
  kLost,     ///< b: the side that hears of its end
  kYield,    ///< who opened it closes its socket, to dial again later
  kBreak,    ///< b: bit n is set if what is on the way to side n still arrives
  // The device. `a`: the number of a queue pair
  kPacket,   ///< the oldest packet that was posted on it arrives, and is polled
  kHangup,   ///< iWARP: it hears of the end of its peer's
  kFailure,  ///< it breaks. b: 1 if the oldest packet that was posted on it arrives all the same
};

/// Small numbers only: they say the same thing in every world that the same choices have led to.
struct Choice {
  Kind kind = Kind::kSend;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;  ///< also kFails
  auto operator<=>(const Choice&) const = default;
};

/// In Choice::c: the next verbs call that may fail does.
inline constexpr std::uint8_t kFails = 0x80;

using Schedule = std::vector<Choice>;

}  // namespace fabric::model
