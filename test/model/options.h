// SPDX-License-Identifier: BSD-3-Clause
//
// What is explored: how often things may happen or go wrong, and what is expected in the end.
#pragma once

#include <array>
#include <cstdint>

#include "common/ports/port_address.h"
#include "cpc/oob/oob.h"
#include "test/model/ledger.h"

namespace fabric::model {

/// Of one process, how often at most.
struct Plan {
  std::array<std::uint8_t, kMostProcesses> sends{};   ///< messages to each process
  std::array<std::uint8_t, kMostProcesses> closes{};  ///< of the connection with each process, by the application
  std::array<std::uint8_t, kMostProcesses> rests{};   ///< it asks whether the link with each process may go
  std::uint8_t leaves = 0;                            ///< ends in order, when all is done: 0 or 1
  std::uint8_t exits = 0;                             ///< ends without closing anything: 0 or 1
  std::uint8_t dies = 0;                              ///< its host is gone: 0 or 1
};

/// A mistake of a main thread, or of who carries its words, to see that it is found.
enum class Mistake : std::uint8_t {
  kNone,
  kReceivesNotPosted,  ///< ReceivesPosted is said, and nothing is posted
  kCloseLost,          ///< a Close never comes to the progress thread
  kDestroyEarly,       ///< Destroy is said with Close
  kOldNumber,          ///< commands name the link before the one that they are for
  kPeerLeftLost,
  kFlushingLost,
  kFlushingOfNewest,  ///< Flushing names the newest link, whichever is over
  kSentTwice,         ///< the device sends packets twice
  kClaimsToKnow,      ///< who tells by another port what it has taken claims to know of every break
};

struct Options {
  cpc::CpcTraits cpc = cpc::kOob;
  Transport transport = Transport::kRoce;
  bool first_queue_is_shared = false;
  std::uint8_t queues = 1;  ///< of a link: 1, or 2
  std::uint8_t processes = 2;
  std::array<Plan, kMostProcesses> plans{};

  std::uint8_t losses = 0;  ///< channels that break
  std::uint8_t breaks = 0;  ///< queue pairs that break
  bool heals = false;       ///< connections that break are made anew, with no limit of time
  bool other_way =
      false;  ///< there is another port too, over which nothing is sent but what a broken connection leaves
  std::uint8_t retries = 0;   ///< attempts after the first that there is time for, if the peer is not heard of
  std::uint8_t failures = 0;  ///< verbs calls that fail
  std::uint8_t yields = 0;    ///< channels that are given up to others, to be opened again later
  /// Who has given its channel up may end before it is back: its peer then waits for a limit in time.
  bool openers_go = false;
  bool dials = false;  ///< a REQUEST may take its time to leave
  bool hasty_timers =
      false;  ///< those that wait for a peer may be over at any time, not only when nothing else happens
  bool commands_wait = false;       ///< the progress thread may hear of a command later than it is said
  bool breaks_until_reply = false;  ///< channels break only before their REPLY is read, which then never arrives

  /// Two applications agree to close, as with MPI_Comm_disconnect: when everything between them has arrived, and both do
  /// before either sends again.
  bool closes_agreed = false;
  bool nothing_fails = true;   ///< no upper layer is told that a peer cannot be reached
  bool goes_on = false;        ///< who is told that hears nothing more of its messages to that peer
  bool one_target = false;     ///< X queues: nothing happens that asks for a second one
  bool receivers_stay = true;  ///< X queues: who only receives loses nothing when it closes
  Mistake mistake = Mistake::kNone;
};

}  // namespace fabric::model
