// SPDX-License-Identifier: BSD-3-Clause
//
// A model of two peers that connect: each runs the connection table, they talk over channels that behave like TCP
// connections and break at any moment, and their main threads answer whenever they like. explore() walks every order of
// events, breadth first. It knows nothing of what the table says: it carries out actions and watches what comes of
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cpc/core/connection_table.h"
#include "test/unit/connection_world.h"
#include "test/unit/search.h"

namespace fabric::model {

using cpc::Action;
using cpc::Event;
using cpc::Guards;
using cpc::Outcome;

/// What is explored: how often things may go wrong, and what is expected in the end.
struct Options {
  Byte losses = 0;
  Byte retries = 0;
  Byte closes = 0;
  Byte local_errors = 0;
  Byte yields = 0;     ///< how often a channel is closed to make room for others, and opened again later
  bool dials = false;  ///< a REQUEST may take its time to leave
  std::array<Byte, 2> wants{1, 1};
  bool hasty_handshake_timer = false;  ///< it may fire at any time, not only when nothing else can happen
  bool both_must_connect = true;  ///< what a quiet world is checked for: everybody connected, or else everybody told
  Guards (*bend)(int peer, Guards guards) = nullptr;  ///< a fault to be found

  // CPCs that exchange CTS
  bool exchanges = false;
  bool is_iwarp = false;            ///< the passive side must not send first, and nobody waits for a receive
  bool first_queue_is_p = true;     ///< CTS takes the handshake buffer; otherwise a shared receive
  bool breaks_until_reply = false;  ///< channels break only before their REPLY is read, which then never arrives
  cpc::CtsStep (*bend_cts)(cpc::CtsState state, cpc::CtsEvent event, cpc::CtsStep step) = nullptr;
  bool bend_speaks_first = false;  ///< the fault: the passive side takes itself for the active one
  Action skip = Action::kNone;     ///< the fault: an action that is left out
};

/// The message that an event is about.
struct Incoming {
  Byte channel = kNoChannel;
  Byte ends = 0;
  Byte attempt = 0;
  bool is_destroy = false;  ///< no message at all: the main thread is done with the connection
};

/// Who moves, and how.
struct Move {
  int peer = 0;
  std::string_view what;
};

class Explorer : public Search<World, Move> {
 public:
  explicit Explorer(const Options& options) : options_(options) {}

  /// The first fault found, with the shortest way there, or nothing. `states()` tells how much was seen.
  std::optional<std::string> explore();

 private:
  void visit(World world) {
    world.forget_channels();
    Search::visit(world);
  }
  void expand(const World& world);
  void main_thread_moves(const World& world, int peer);
  void channel_moves(const World& world, std::size_t index, std::size_t side);
  void breaks(const World& world, std::size_t index);
  void timers(const World& world, bool quiet);
  void check_quiet(const World& world);
  void deliver(World world, std::size_t index, std::size_t side);

  void apply(World world, int peer, Event event, Incoming incoming = {});
  // What actions do (connection_model_actions.h)
  void perform_from(World world, int peer, const cpc::Step& step, std::size_t first, Incoming incoming);
  bool perform(World& world, int peer, Action action, const Incoming& incoming);
  void require_room(const World& world, bool had_room) {
    if (!had_room) {
      fault(world, "more channels or letters than the model holds");
    }
  }
  void tell_connected(World& world, int peer);
  void fault(const World& world, const std::string& what);

  // The main threads' half of a CTS exchange (connection_model_cts.h)
  void cts_moves(const World& world, int peer);
  void cts_travels(const World& world, int from);
  void apply_cts(World& world, int peer, cpc::CtsEvent event);
  void check_quiet_cts(const World& world);

  Options options_;
};

inline void Explorer::fault(const World& world, const std::string& what) {
  std::string text = what + " in" + describe(world) + " after";
  for (const Move& move : way()) {
    text += " " + std::to_string(move.peer) + ":" + std::string(move.what);
  }
  found(std::move(text));
}

inline std::optional<std::string> Explorer::explore() {
  World start;
  start.losses = options_.losses;
  start.local_errors = options_.local_errors;
  start.yields = options_.yields;
  for (std::size_t i = 0; i < 2; ++i) {
    start.peers[i].wants = options_.wants[i];
    start.peers[i].closes = options_.closes;
  }
  start.forget_channels();
  return search(start, [this](const World& world) { expand(world); });
}

inline void Explorer::expand(const World& world) {
  for (int peer = 0; peer < 2; ++peer) {
    main_thread_moves(world, peer);
    if (options_.exchanges) {
      cts_moves(world, peer);
      cts_travels(world, peer);
    }
  }
  for (std::size_t i = 0; i < kChannels; ++i) {
    if (world.channels[i].used != 0) {
      channel_moves(world, i, 0);
      channel_moves(world, i, 1);
    }
  }
  const bool retry_comes = world.peers[0].timer == 1 || world.peers[1].timer == 1;
  timers(world, is_quiet() && !retry_comes);
  if (is_quiet()) {
    check_quiet(world);
  }
  for (std::size_t i = 0; i < kChannels; ++i) {
    if (world.channels[i].used != 0 && world.losses > 0) {
      breaks(world, i);
    }
  }
}

inline void Explorer::main_thread_moves(const World& world, int number) {
  const auto index = static_cast<std::size_t>(number);
  const Peer& peer = world.peers[index];
  const Peer& other = world.peers[1 - index];
  const auto act = [&](Event event, auto change) {
    World next = world;
    change(next.peers[index]);
    apply(next, number, event);
  };
  if (peer.wants > 0) {
    act(Event::kConnectWanted, [](Peer& p) { p.wants--, p.wanted = 1, p.has_target = 1; });
  }
  if (peer.must_post != 0) {
    act(Event::kReceivesPosted,
        [](Peer& p) { p.must_post = 0, p.posted = static_cast<Byte>(p.posted | 1U << p.incarnation); });
  }
  if (peer.must_close != 0) {
    act(Event::kCloseWanted, [](Peer& p) { p.must_close = 0, p.must_post = 0, p.must_link = 0, p.must_hear_left = 0; });
  }
  if (peer.must_destroy != 0) {
    act(Event::kDestroyWanted, [](Peer& p) { p.must_destroy = 0; });
  }
  if (peer.closes > 0 && peer.state != State::kClosed && peer.must_close == 0 && peer.state != State::kClosing) {
    choose([&] {
      act(Event::kCloseWanted, [](Peer& p) {
        p.closes--, p.gave_up = 1, p.must_post = 0, p.must_link = 0, p.must_hear_left = 0;
        p.cts = cpc::CtsState::kLost;  // the endpoint hears no more
      });
    });
  }
  if (!options_.exchanges && other.told_connected != 0 && other.linked_to == peer.incarnation &&
      peer.incarnation != 0 && peer.linked_to == other.incarnation && peer.told_connected == 0 &&
      peer.state == State::kReplySent) {
    choose([&] { act(Event::kPeerSpoke, [](Peer&) {}); });
  }
}

inline void Explorer::channel_moves(const World& world, std::size_t index, std::size_t side) {
  const Channel& channel = world.channels[index];
  if (channel.open[side] == 0) {
    return;
  }
  if (channel.letters[side][0] != kNothing) {
    deliver(world, index, side);
    return;
  }
  if (side == 0 && channel.dialing != 0 && channel.lost[0] == 0) {
    World next = world;
    next.request_leaves(static_cast<Byte>(index));
    move_ = {channel.opener, "REQUEST leaves"};
    visit(next);
    return;
  }
  if (side == 0 && world.yields > 0 && channel.answered == 0 && channel.lost[0] == 0 && channel.accepted != 0 &&
      world.peers[channel.opener].state == State::kRequestSent) {
    World next = world;
    next.yields--;
    move_ = {channel.opener, "yields"};
    if (!next.yield_channel(channel.opener)) {
      fault(world, "more channels than the model holds");
    }
    visit(next);
  }
  const bool other_closed = channel.open[1 - side] == 0;
  if ((channel.lost[side] == 0 && !other_closed) || (side == 1 && channel.accepted == 0)) {
    return;
  }
  const bool taken = !options_.exchanges && side == 0 && channel.confirm_sent != 0 && channel.lost[side] == 0;
  const int peer = side == 0 ? channel.opener : 1 - channel.opener;
  apply(world, peer, taken ? Event::kConfirmTaken : Event::kChannelLost);
}

inline void Explorer::deliver(World world, std::size_t index, std::size_t side) {
  Channel& channel = world.channels[index];
  const Byte letter = channel.letters[side][0];
  std::array<Byte, 4>& letters = channel.letters[side];
  for (std::size_t i = 0; i + 1 < letters.size(); ++i) {
    letters[i] = letters[i + 1];
  }
  letters.back() = kNothing;
  const int peer = side == 0 ? channel.opener : 1 - channel.opener;
  switch (letter) {
    case kRequest: {
      channel.accepted = 1;
      apply(world, peer, Event::kRequestArrived, {static_cast<Byte>(index), channel.ends, channel.attempt});
      break;
    }
    case kReply:
      channel.answered = 1;
      apply(world, peer, Event::kReplyArrived, {kNoChannel, channel.reply_ends, channel.attempt});
      break;
    case kConfirm:
      apply(world, peer, Event::kConfirmArrived);
      break;
    case kRefuse:
      apply(world, peer, Event::kRefusalArrived);
      break;
    default:
      apply(world, peer, Event::kCollisionArrived);
      break;
  }
}

/// A channel breaks: what was on the way to either side may still arrive, or not.
inline void Explorer::breaks(const World& world, std::size_t index) {
  if (options_.breaks_until_reply && world.channels[index].answered != 0) {
    return;
  }
  for (unsigned kept = 0; kept < (options_.breaks_until_reply ? 1U : 4U); ++kept) {
    World next = world;
    next.losses--;
    Channel& channel = next.channels[index];
    if (channel.lost[0] != 0) {
      return;
    }
    channel.lost = {1, 1};
    for (std::size_t side = 0; side < 2; ++side) {
      if ((kept >> side & 1U) == 0) {
        channel.letters[side] = {};
      }
    }
    move_ = {static_cast<int>(index), "channel breaks"};
    visit(next);
  }
}

inline void Explorer::timers(const World& world, bool quiet) {
  for (int number = 0; number < 2; ++number) {
    const Peer& peer = world.peers[static_cast<std::size_t>(number)];
    if (peer.timer == 1 || (peer.timer == 2 && (quiet || options_.hasty_handshake_timer))) {
      World next = world;
      next.peers[static_cast<std::size_t>(number)].timer = 0;
      apply(next, number, peer.timer == 1 ? Event::kRetryTimer : Event::kHandshakeTimer);
    }
  }
}

/// Nothing more happens by itself: is everybody where they should be?
inline void Explorer::check_quiet(const World& world) {
  move_ = {};
  if (options_.exchanges) {
    check_quiet_cts(world);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const Peer& peer = world.peers[i];
    const Peer& other = world.peers[1 - i];
    const bool settled = peer.state == State::kClosed || peer.state == State::kConnected;
    if (!settled) {
      fault(world, "a connection is stuck");
    }
    if (peer.wanted != 0 && peer.told_connected == 0 && peer.told_failed == 0 && peer.gave_up == 0) {
      fault(world, "a Connect was never answered");
    }
    if (options_.both_must_connect && (peer.told_connected == 0 || peer.linked_to != other.incarnation)) {
      fault(world, "the peers are not connected");
    }
    if ((peer.state == State::kClosed) != (peer.incarnation == 0)) {
      fault(world, "queue pairs are left over");
    }
  }
}

inline void Explorer::apply(World world, int number, Event event, Incoming incoming) {
  Peer& peer = world.peers[static_cast<std::size_t>(number)];
  Guards guards;
  guards.peer_has_precedence = number == 1 || peer.request_left == 0;
  guards.repeated = incoming.ends != 0 && incoming.ends == peer.linked_to;
  guards.stale = guards.repeated && incoming.channel != kNoChannel && incoming.attempt < peer.peer_attempt;
  guards.retries_left = peer.attempt <= options_.retries;
  guards.channel_up = peer.channel != kNoChannel;
  guards.exchanges = options_.exchanges;
  guards.wanted = peer.has_target != 0;
  if (options_.exchanges) {
    guards.repeated = incoming.channel != kNoChannel && incoming.attempt <= peer.peer_attempt;
    guards.stale = guards.repeated;
  }
  if (options_.bend != nullptr) {
    guards = options_.bend(number, guards);
  }
  const cpc::Step step = cpc::step(peer.state, event, guards);
  move_ = {number, to_string(event)};
  incoming.is_destroy = event == Event::kDestroyWanted;
  if (step.outcome == Outcome::kProtocolError && (options_.both_must_connect || peer.state != State::kConfirming)) {
    fault(world, "protocol error: peer " + std::to_string(number) + ": " + std::string(to_string(event)) + ": " +
                     std::string(step.why));
  }
  if (step.outcome == Outcome::kIgnored) {
    visit(world);
    return;
  }
  peer.state = step.next;
  perform_from(world, number, step, 0, incoming);
}

}  // namespace fabric::model
