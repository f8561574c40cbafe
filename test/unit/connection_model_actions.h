// SPDX-License-Identifier: BSD-3-Clause
//
// The model of two peers (connection_model.h): what each action of the connection table does there.
#pragma once

#include "test/unit/connection_model.h"

namespace fabric::model {

/// Carries out actions; where a verbs call may fail, both ways.
inline void Explorer::perform_from(World world, int number, const cpc::Step& step, std::size_t first,
                                   Incoming incoming) {
  for (std::size_t i = first; i < step.actions.size(); ++i) {
    const Action action = step.actions[i];
    if (action == options_.skip) {
      continue;
    }
    if (world.local_errors > 0 && (action == Action::kMakeQueuePairs || action == Action::kConnectQueuePairs)) {
      World failed = world;
      failed.local_errors--;
      const Move move = move_;
      apply(failed, number, Event::kLocalError);
      move_ = move;
    }
    if (!perform(world, number, action, incoming)) {
      return;
    }
  }
  visit(world);
}

inline bool Explorer::perform(World& world, int number, Action action, const Incoming& incoming) {
  Peer& peer = world.peers[static_cast<std::size_t>(number)];
  switch (action) {
    case Action::kMakeQueuePairs:
      if (peer.incarnation != 0) {
        fault(world, "queue pairs made twice");
      }
      peer.incarnation = ++peer.made;
      break;
    case Action::kConnectQueuePairs:
      if (peer.linked_to != 0 || peer.incarnation == 0) {
        fault(world, "queue pairs connected twice, or never made");
      }
      peer.linked_to = incoming.ends;
      peer.opened = incoming.channel == kNoChannel ? 1 : 0;
      break;
    case Action::kDestroyQueuePairs: {
      if (!incoming.is_destroy) {
        peer.incarnation = 0;
        peer.linked_to = 0;
        break;
      }
      const Peer old = peer;  // a new connection object, if there is one again
      peer = Peer();
      peer.made = old.made;
      peer.wants = old.wants;
      peer.wanted = old.wanted;
      peer.closes = old.closes;
      peer.gave_up = old.gave_up;
      peer.posted = old.posted;
      peer.handshakes = old.handshakes;
      peer.told_connected = old.told_connected;
      peer.told_failed = old.told_failed;
      break;
    }
    case Action::kPostHandshake:
      peer.handshakes = static_cast<Byte>(peer.handshakes | 1U << peer.incarnation);
      break;
    case Action::kOpenChannel:
      if (peer.channel != kNoChannel) {
        fault(world, "a channel is opened while there is one");
      }
      require_room(world, world.open_channel(number, options_.dials));
      break;
    case Action::kAdoptChannel:
      world.close_channel(number);
      peer.channel = incoming.channel;
      peer.peer_attempt = incoming.attempt;
      break;
    case Action::kRefuseCollision:
      world.refuse(incoming.channel, kCollision);
      break;
    case Action::kRefuseOther:
    case Action::kRefuseUnavailable:
      world.refuse(incoming.channel, kRefuse);
      break;
    case Action::kDropNewChannel:
      world.refuse(incoming.channel, kNothing);
      break;
    case Action::kSendReply:
      require_room(world, world.send(number, kReply));
      break;
    case Action::kSendConfirm:
      require_room(world, world.send(number, kConfirm));
      break;
    case Action::kSendRefusal:
      // Who opened it by a communication manager can only hang up before there is an answer.
      if (!options_.exchanges || peer.channel == kNoChannel || world.channels[peer.channel].opener != number) {
        require_room(world, world.send(number, kRefuse));
      }
      break;
    case Action::kCloseChannel:
      world.close_channel(number);
      break;
    case Action::kStartRetryTimer:
      peer.timer = 1;
      break;
    case Action::kStartHandshakeTimer:
      peer.timer = 2;
      break;
    case Action::kStopTimer:
      peer.timer = 0;
      break;
    case Action::kAskForReceives:
      peer.must_post = 1;
      break;
    case Action::kTellConnected:
      tell_connected(world, number);
      break;
    case Action::kTellLinked:
      peer.must_link = 1;
      break;
    case Action::kTellPeerLeft:
      peer.must_hear_left = 1;
      break;
    case Action::kTellFailed:
      peer.told_failed = 1;
      peer.must_close = 1;
      break;
    case Action::kTellFlushing:
      peer.must_destroy = 1;
      break;
    case Action::kWantSender:  // of connections that go one way: sender_model.h
    case Action::kRetireSender:
    case Action::kSendTarget:
    case Action::kFlushQueuePairs:
    case Action::kNone:
      break;
  }
  return !has_found();
}

inline void Explorer::tell_connected(World& world, int number) {
  Peer& peer = world.peers[static_cast<std::size_t>(number)];
  const Peer& other = world.peers[static_cast<std::size_t>(1 - number)];
  if ((other.posted >> peer.linked_to & 1U) == 0 || (peer.posted >> peer.incarnation & 1U) == 0) {
    fault(world, "connected before both have posted");
  }
  if (peer.told_connected != 0 && peer.made == 1) {
    fault(world, "told connected twice");
  }
  peer.told_connected = 1;
}

}  // namespace fabric::model
