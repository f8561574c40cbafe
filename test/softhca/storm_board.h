// SPDX-License-Identifier: BSD-3-Clause
//
// What the processes of test_softhca_storm tell each other, in a file that all of them map; and the words that they send.
#pragma once

#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace storm {

using Clock = std::chrono::steady_clock;

constexpr unsigned kPeers = 8;         // at most
constexpr uint32_t kLives = 1U << 14;  // of a place, in one storm
constexpr uint32_t kSequences = 1U << 18;
/// How long something may take that takes milliseconds when the machine is idle.
constexpr std::chrono::seconds kPatience{100};

/// What was verified of a pair.
enum Kind : unsigned { kMessage, kXrcMessage, kDatagram, kWritten, kAdded, kKinds };
constexpr const char* kKindNames[kKinds] = {"messages", "XRC messages", "datagrams", "writes read back",
                                            "atomic additions"};

/// Two lives that have a connection; 0: none.
constexpr uint64_t both(uint32_t own, uint32_t other) {
  return uint64_t{own} << 32 | other;
}

/// Who a word is from and for, and its place: whatever arrives anywhere else, in another life or another order is seen.
struct Words {
  uint32_t from;
  uint32_t to;
  uint32_t from_life;
  uint32_t to_life;

  /// Word `position` (below 4096) of message `sequence`, which may wrap at kSequences.
  constexpr uint64_t word(size_t position, uint32_t sequence) const {
    return uint64_t{from} << 61 | uint64_t{to} << 58 | uint64_t{from_life} << 44 | uint64_t{to_life} << 30 |
           uint64_t{position} << 18 | sequence % kSequences;
  }
  static constexpr uint32_t sequence_of(uint64_t word) { return word % kSequences; }
  static constexpr uint32_t from_of(uint64_t word) { return static_cast<uint32_t>(word >> 61); }
  static constexpr uint32_t from_life_of(uint64_t word) { return word >> 44 & (kLives - 1); }
};

/// How the other side of a pair reaches this one. Valid while `lives` is both(who offers, whom it is for).
struct Offer {
  std::atomic<uint64_t> lives;
  uint32_t rc;
  uint32_t initiator;
  uint32_t target;
  uint32_t rkey;
  uint64_t region;
  uint64_t counter;
};

/// One of the processes, in all of its lives.
struct Place {
  std::atomic<uint32_t> doomed;  // lives up to this have been killed, or are about to be
  std::atomic<uint32_t> ready;   // the life that what follows is of
  uint32_t datagrams;            // its UD queue pair
  uint32_t qkey;
  uint32_t srqn;
};

struct Board {
  std::atomic<bool> failed;
  Place places[kPeers];
  Offer offers[kPeers][kPeers];                        // [who offers][whom it is for]
  std::atomic<uint64_t> up[kPeers][kPeers];            // its queue pairs are ready to send
  std::atomic<uint64_t> done[kPeers][kPeers][kKinds];  // [from][to]
};

/// Says what is wrong, and ends the process.
[[noreturn]] __attribute__((format(printf, 3, 4))) inline void fail(Board& board, const char* who, const char* format,
                                                                    ...) {
  board.failed = true;  // before anything that takes time: a kill may be on its way
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "FAILED: %s: %s\n", who, text);
  _exit(1);
}

}  // namespace storm
