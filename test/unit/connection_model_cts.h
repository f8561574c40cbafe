// SPDX-License-Identifier: BSD-3-Clause
//
// The model's main threads, of CPCs that exchange CTS: they run the CTS table, and CTS travels over the queue pairs.
#pragma once

#include "test/unit/connection_model.h"

namespace fabric::model {

using cpc::CtsAction;
using cpc::CtsEvent;
using cpc::CtsState;

/// The main thread hears an upcall, whenever it likes.
inline void Explorer::cts_moves(const World& world, int number) {
  const auto index = static_cast<std::size_t>(number);
  const Peer& peer = world.peers[index];
  if (peer.must_link != 0) {
    World next = world;
    move_ = {number, "main thread hears Linked, posts"};
    Peer& changed = next.peers[index];
    changed.must_link = 0;
    changed.posted = static_cast<Byte>(changed.posted | 1U << changed.incarnation);
    apply_cts(next, number, CtsEvent::kLinked);
    if (changed.heard == changed.incarnation) {
      apply_cts(next, number, CtsEvent::kCtsArrived);
    }
    visit(next);
  } else if (peer.must_hear_left != 0) {
    World next = world;
    move_ = {number, "main thread hears PeerLeft"};
    next.peers[index].must_hear_left = 0;
    apply_cts(next, number, CtsEvent::kPeerLeft);
    visit(next);
  }
}

/// The CTS of `from` arrives, or does not because the queue pair that it was for is gone.
inline void Explorer::cts_travels(const World& world, int from) {
  const Peer& sender = world.peers[static_cast<std::size_t>(from)];
  const int to = 1 - from;
  const Peer& receiver = world.peers[static_cast<std::size_t>(to)];
  if (sender.cts_from == 0) {
    return;
  }
  const bool is_there = receiver.incarnation == sender.cts_to && receiver.linked_to == sender.cts_from &&
                        receiver.state != State::kClosing;
  const bool has_posted = (receiver.posted >> sender.cts_to & 1U) != 0;
  const bool has_handshake = (receiver.handshakes >> sender.cts_to & 1U) != 0;
  if (is_there && !options_.first_queue_is_p && !has_posted) {
    return;  // "receiver not ready": the device sends it again and again
  }
  World next = world;
  next.peers[static_cast<std::size_t>(from)].cts_from = 0;
  move_ = {to, is_there ? "CTS arrives" : "CTS finds no queue pair"};
  if (is_there) {
    if (options_.first_queue_is_p && !has_handshake) {
      fault(world, "CTS finds no receive");
    }
    if (options_.is_iwarp && sender.opened == 0 && receiver.cts == CtsState::kUnlinked) {
      fault(world, "the passive side of an iWARP connection has sent first");
    }
    if (receiver.cts == CtsState::kUnlinked) {
      next.peer(to).heard = receiver.incarnation;
    } else {
      apply_cts(next, to, CtsEvent::kCtsArrived);
    }
  }
  visit(next);
}

inline void Explorer::apply_cts(World& world, int number, CtsEvent event) {
  Peer& peer = world.peer(number);
  const Peer& other = world.peer(1 - number);
  const bool may_speak_first = !options_.is_iwarp || peer.opened != 0 || options_.bend_speaks_first;
  cpc::CtsStep step = cpc::cts_step(peer.cts, event, may_speak_first);
  if (options_.bend_cts != nullptr) {
    step = options_.bend_cts(peer.cts, event, step);
  }
  peer.cts = step.next;
  for (const CtsAction action : step.actions) {
    switch (action) {
      case CtsAction::kSendCts:
        peer.cts_from = peer.incarnation;
        peer.cts_to = peer.linked_to;
        break;
      case CtsAction::kStartSending:
        if ((other.posted >> peer.linked_to & 1U) == 0) {
          fault(world, "a message may go before the peer has posted for it");
        }
        if (other.incarnation == peer.linked_to && other.linked_to != peer.incarnation) {
          fault(world, "clear to send over queue pairs that are connected to others");
        }
        peer.told_connected = 1;
        break;
      case CtsAction::kFail:
        peer.told_failed = 1;
        peer.must_close = 1;
        break;
      case CtsAction::kNotePeerLeft:
      case CtsAction::kNone:
        break;
    }
  }
}

/// Nobody waits for a CTS that never comes.
inline void Explorer::check_quiet_cts(const World& world) {
  for (const Peer& peer : world.peers) {
    if (peer.state == State::kConnected && peer.cts != CtsState::kClear && peer.cts != CtsState::kLost) {
      fault(world, "a CTS never came");
    }
  }
}

}  // namespace fabric::model
