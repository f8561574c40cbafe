// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the sender model that carries out what the tables say. Included by sender_model.h.
#pragma once

#include "test/unit/sender_model.h"

namespace fabric::model {

// ---- Events, and what they lead to

inline void SenderExplorer::apply(SenderWorld world, std::size_t pair, int side, Event event,
                                  const Incoming& incoming) {
  const SenderMove move{pair, side, to_string(event)};
  const bool connects = event == Event::kReplyArrived || event == Event::kTargetArrived;
  if (world.failing_connects > 0 && side == kUs && connects && world.us(pair).state == State::kRequestSent &&
      world.sender_of(pair).target == 0) {
    SenderWorld failed = world;
    failed.failing_connects--;
    move_ = move;
    if (step_once(failed, pair, side, Event::kLocalError, {})) {
      visit(failed);
    }
  }
  move_ = move;
  if (step_once(world, pair, side, event, incoming)) {
    visit(world);
  }
}

inline bool SenderExplorer::step_once(SenderWorld& world, std::size_t pair, int side, Event event,
                                      const Incoming& incoming) {
  Peer& peer = world.pairs[pair].world.peers[static_cast<std::size_t>(side)];
  cpc::Guards guards;
  const bool same_ends = incoming.ends != 0 && incoming.ends == peer.linked_to;
  guards.repeated = same_ends && (side == kUs || incoming.named == 0 || incoming.named == peer.incarnation);
  guards.stale = guards.repeated && incoming.channel != kNoChannel && incoming.attempt < peer.peer_attempt;
  guards.retries_left = peer.attempt <= options_.retries;
  guards.channel_up = peer.channel != kNoChannel;
  guards.wanted = peer.has_target != 0;
  guards.one_way = true;
  const Event seen =
      event == Event::kTargetGoneArrived && world.pairs[pair].our_named == 0 ? Event::kRefusalArrived : event;
  const cpc::Step step = cpc::step(peer.state, seen, guards);
  if (step.outcome == cpc::Outcome::kProtocolError) {
    fault(world, "protocol error: " + std::string(to_string(seen)) + ": " + std::string(step.why));
  }
  if (step.outcome == cpc::Outcome::kIgnored) {
    return true;
  }
  peer.state = step.next;
  for (const Action action : step.actions) {
    if (action != options_.skip && !perform(world, pair, side, action, incoming)) {
      return !has_found() && step_once(world, pair, side, Event::kLocalError, {});
    }
  }
  return !has_found();
}

/// What both sides do alike. False: it has failed.
inline bool SenderExplorer::perform(SenderWorld& world, std::size_t pair, int side, Action action,
                                    const Incoming& incoming) {
  World& both = world.pairs[pair].world;
  Peer& peer = both.peer(side);
  bool failed = false;
  const auto require_room = [&](bool had_room) {
    if (!had_room) {
      fault(world, "more channels or letters than the model holds");
    }
  };
  switch (action) {
    case Action::kOpenChannel:
      require_room(both.open_channel(side));
      if (peer.channel != kNoChannel) {
        world.pairs[pair].named[peer.channel] = world.pairs[pair].our_named = world.sender_of(pair).target;
      }
      break;
    case Action::kAdoptChannel:
      both.close_channel(side);
      peer.channel = incoming.channel;
      peer.peer_attempt = incoming.attempt;
      break;
    case Action::kRefuseCollision:
    case Action::kRefuseOther:
    case Action::kRefuseUnavailable:
      both.refuse(incoming.channel, kRefuse);
      break;
    case Action::kDropNewChannel:
      both.refuse(incoming.channel, kNothing);
      break;
    case Action::kSendTarget:
      require_room(both.send(side, kTarget));
      break;
    case Action::kSendReply:
      require_room(both.send(side, kReply));
      break;
    case Action::kSendConfirm:
      require_room(both.send(side, kConfirm));
      break;
    case Action::kSendRefusal:
      require_room(both.send(side, kRefuse));
      break;
    case Action::kCloseChannel:
      both.close_channel(side);
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
    case Action::kTellFlushing:
      peer.must_destroy = 1;
      break;
    case Action::kTellFailed:
      if (side == kUs && peer.incarnation != 0) {
        give_up(world, pair);
      }
      peer.told_failed = 1;
      peer.must_close = 1;
      break;
    default:
      if (side == kUs) {
        perform_ours(world, pair, action, incoming, failed);
      } else {
        perform_theirs(world, pair, action, incoming);
      }
  }
  return !failed && !has_found();
}

inline void SenderExplorer::perform_ours(SenderWorld& world, std::size_t pair, Action action, const Incoming& incoming,
                                         bool& failed) {
  Peer& us = world.us(pair);
  switch (action) {
    case Action::kMakeQueuePairs:
      join(world, pair);
      break;
    case Action::kWantSender:
      world.pairs[pair].is_user = 1;
      sender_event(world, pair, SenderEvent::kWanted);
      break;
    case Action::kRetireSender:
      sender_event(world, pair, SenderEvent::kTargetGone);
      break;
    case Action::kConnectQueuePairs: {
      Sender& sender = world.sender_of(pair);
      us.linked_to = incoming.ends;
      if (sender.target != 0) {
        failed = sender.target != incoming.ends;
      } else if (sender.owner != pair + 1) {
        failed = true;
      } else {
        sender.target = incoming.ends;
        sender.owner = 0;
        sender_event(world, pair, SenderEvent::kOwnerConnected);
      }
      break;
    }
    case Action::kTellConnected:
      if ((world.them(pair).posted >> us.linked_to & 1U) == 0) {
        fault(world, "connected before the peer has posted");
      }
      if (us.told_connected != 0) {
        fault(world, "told connected twice");
      }
      us.told_connected = 1;
      break;
    case Action::kFlushQueuePairs:
      if (us.incarnation != 0) {
        leave(world, pair);
      }
      break;
    case Action::kDestroyQueuePairs: {
      if (us.incarnation != 0) {
        leave(world, pair);
      }
      us.incarnation = 0;
      us.linked_to = 0;
      if (us.state != State::kClosed) {
        break;  // joins another sender
      }
      Peer fresh;
      fresh.wants = us.wants;
      fresh.wanted = us.wanted;
      fresh.closes = us.closes;
      fresh.gave_up = us.gave_up;
      fresh.told_failed = us.told_failed;
      us = fresh;
      world.pairs[pair].our_named = 0;
      break;
    }
    default:
      break;
  }
}

inline void SenderExplorer::perform_theirs(SenderWorld& world, std::size_t pair, Action action,
                                           const Incoming& incoming) {
  Peer& them = world.them(pair);
  switch (action) {
    case Action::kMakeQueuePairs:
      if (incoming.named == 0 && (options_.one_target && world.targets_made == 1)) {
        fault(world, "a second target for one sender");
      }
      them.incarnation = incoming.named != 0 ? incoming.named : ++world.targets_made;
      if (world.targets_made > 7) {
        fault(world, "more targets than the model holds");
      }
      break;
    case Action::kConnectQueuePairs:
      them.linked_to = incoming.ends;
      break;
    case Action::kDestroyQueuePairs: {
      Peer fresh;
      fresh.closes = them.closes;
      fresh.gave_up = them.gave_up;
      fresh.posted = them.posted;
      them = fresh;
      break;
    }
    default:
      break;
  }
}

// ---- The senders

inline void SenderExplorer::join(SenderWorld& world, std::size_t pair) {
  Byte number = 0;
  for (std::size_t i = 0; i < kSenders; ++i) {
    number = world.senders[i].current != 0 ? static_cast<Byte>(i + 1) : number;
  }
  if (number == 0) {
    if (world.senders_made == kSenders) {
      fault(world, "more senders than the model holds");
      return;
    }
    number = ++world.senders_made;
    world.senders[number - 1U].current = 1;
  }
  world.us(pair).incarnation = number;
}

inline void SenderExplorer::give_up(SenderWorld& world, std::size_t pair) {
  world.pairs[pair].turn = 0;
  Sender& sender = world.sender_of(pair);
  if (sender.owner == pair + 1) {
    sender.owner = 0;
    sender_event(world, pair, SenderEvent::kOwnerFailed);
  }
}

inline void SenderExplorer::leave(SenderWorld& world, std::size_t pair) {
  give_up(world, pair);
  if (world.pairs[pair].is_user == 0) {
    return;
  }
  world.pairs[pair].is_user = 0;
  bool last = true;
  for (std::size_t i = 0; i < kPeers; ++i) {
    last = last && (world.pairs[i].is_user == 0 || world.us(i).incarnation != world.us(pair).incarnation);
  }
  sender_event(world, pair, last ? SenderEvent::kLastReleased : SenderEvent::kReleased);
}

inline void SenderExplorer::grant(SenderWorld& world, std::size_t peer_number) {
  if (peer_number == 0 || world.us(peer_number - 1).state != State::kQueued) {
    fault(world, "a turn for who does not wait for it");
    return;
  }
  world.pairs[peer_number - 1].turn = 1;
}

inline void SenderExplorer::sender_event(SenderWorld& world, std::size_t pair, SenderEvent event) {
  Sender& sender = world.sender_of(pair);
  const auto number = static_cast<Byte>(pair + 1);
  SenderStep step = cpc::sender_step(sender.state, event, sender.line[0] != 0);
  if (options_.bend != nullptr) {
    step = options_.bend(sender.state, event, step);
  }
  if (step.outcome == cpc::SenderOutcome::kImpossible) {
    fault(world, "impossible: " + std::string(to_string(event)) + ": " + std::string(step.why));
    return;
  }
  sender.state = step.next;
  const auto pop = [&] {
    const Byte first = sender.line[0];
    std::copy(sender.line.begin() + 1, sender.line.end(), sender.line.begin());
    sender.line.back() = 0;
    return first;
  };
  for (const SenderAction action : step.actions) {
    switch (action) {
      case SenderAction::kNone:
        break;
      case SenderAction::kMakeOwner:
        sender.owner = number;
        grant(world, number);
        break;
      case SenderAction::kPark:
        *std::find(sender.line.begin(), sender.line.end(), Byte{0}) = number;
        break;
      case SenderAction::kGoOn:
        grant(world, number);
        break;
      case SenderAction::kNextOwner:
        sender.owner = pop();
        grant(world, sender.owner);
        break;
      case SenderAction::kWakeAll:
        while (sender.line[0] != 0) {
          grant(world, pop());
        }
        break;
      case SenderAction::kUnpark: {
        const auto end = std::remove(sender.line.begin(), sender.line.end(), number);
        std::fill(end, sender.line.end(), Byte{0});
        break;
      }
      case SenderAction::kForget:
        sender.current = 0;
        break;
      case SenderAction::kFlush:
        for (std::size_t i = 0; i < kPeers; ++i) {
          if (world.pairs[i].is_user != 0 && world.us(i).incarnation == world.us(pair).incarnation) {
            fault(world, "the sender is flushed while somebody uses it");
          }
        }
        sender = {};  // nobody asks for it any more
        sender.state = SenderState::kRetired;
        break;
    }
  }
}

}  // namespace fabric::model
