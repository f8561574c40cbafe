// SPDX-License-Identifier: BSD-3-Clause
//
// The world of the sender model: a process that connects to several processes of one node, the senders it has made for
// that, and the targets that they have.
#pragma once

#include <array>
#include <cstddef>

#include "cpc/core/connection_table.h"
#include "cpc/queue_pairs/xrc_sender_table.h"
#include "test/unit/connection_world.h"

namespace fabric::model {

using cpc::Action;
using cpc::Event;
using cpc::SenderAction;
using cpc::SenderEvent;
using cpc::SenderState;
using cpc::SenderStep;

constexpr std::size_t kPeers = 3;    ///< processes of the other node
constexpr std::size_t kSenders = 6;  ///< at most, over the time of a world
constexpr int kUs = 0;               ///< in a pair: the process that sends
constexpr int kThem = 1;             ///< in a pair: the process that receives

/// What is explored. Per peer: how often our main thread wants the connection, and either one may close it.
struct SenderOptions {
  std::array<Byte, kPeers> wants{1, 1, 0};
  std::array<Byte, kPeers> our_closes{};
  std::array<Byte, kPeers> their_closes{};
  Byte losses = 0;
  Byte retries = 0;
  Byte failing_connects = 0;                                ///< verbs calls that may fail
  std::array<bool, kPeers> must_connect{true, true, true};  ///< nothing that may happen excuses it
  bool one_target = false;                                  ///< at most one is ever made
  SenderStep (*bend)(SenderState state, SenderEvent event, SenderStep step) = nullptr;  ///< a fault to be found
  Action skip = Action::kNone;  ///< the fault: an action that is left out
};

struct Sender {
  SenderState state = SenderState::kUnconnected;
  Byte target = 0;
  Byte owner = 0;                   ///< number of the peer, from 1; 0: none
  std::array<Byte, kPeers> line{};  ///< the same
  Byte current = 0;                 ///< who joins gets it
};

/// A process of the other node and our connection to it. In `world`, ends are numbers of senders and of targets.
struct Pair {
  World world;
  std::array<Byte, kChannels> named{};  ///< the target that the channel's REQUEST names
  Byte our_named = 0;                   ///< of the latest
  Byte is_user = 0;
  Byte turn = 0;  ///< granted, and not noticed yet
};

struct SenderWorld {
  std::array<Pair, kPeers> pairs;
  std::array<Sender, kSenders> senders;  ///< number n is at n - 1
  Byte senders_made = 0;
  Byte targets_made = 0;
  Byte losses = 0;
  Byte failing_connects = 0;

  [[nodiscard]] Peer& us(std::size_t pair) { return pairs[pair].world.peers[kUs]; }
  [[nodiscard]] Peer& them(std::size_t pair) { return pairs[pair].world.peers[kThem]; }
  [[nodiscard]] Sender& sender_of(std::size_t pair) { return senders.at(us(pair).incarnation - 1U); }
  [[nodiscard]] bool is_alive(Byte target) const {
    for (const Pair& pair : pairs) {
      if (pair.world.peers[kThem].incarnation == target) {
        return true;
      }
    }
    return false;
  }
};
static_assert(sizeof(SenderWorld) == kPeers * sizeof(Pair) + kSenders * sizeof(Sender) + 4,
              "padding would break the comparison");

}  // namespace fabric::model
