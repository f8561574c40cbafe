// SPDX-License-Identifier: BSD-3-Clause
//
// A model of a process that connects to several processes of one node over one shared sender: each of its connections and
// theirs runs the connection table, the senders run the sender table, and an XRC target lives as long as somebody has it.
// Channels, main threads and timers are those of the connection model. explore() walks every order of events, breadth
// first, carries out actions and watches what comes of them.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "test/unit/search.h"
#include "test/unit/sender_world.h"

namespace fabric::model {

/// The message that an event is about.
struct SenderIncoming {
  Byte channel = kNoChannel;
  Byte ends = 0;
  Byte attempt = 0;
  Byte named = 0;  ///< the target that a REQUEST names
};

/// Who moves, and how.
struct SenderMove {
  std::size_t pair = 0;
  int side = 0;
  std::string_view what;
};

class SenderExplorer : public Search<SenderWorld, SenderMove> {
 public:
  explicit SenderExplorer(const SenderOptions& options) : options_(options) {}

  /// The first fault found, with the shortest way there, or nothing.
  std::optional<std::string> explore();

 private:
  using Incoming = SenderIncoming;

  static void forget_channels(SenderWorld& world);
  void visit(SenderWorld world) {
    forget_channels(world);
    Search::visit(world);
  }
  void expand(const SenderWorld& world);
  void main_thread_moves(const SenderWorld& world, std::size_t pair, int side);
  void channel_moves(const SenderWorld& world, std::size_t pair, std::size_t index, std::size_t side);
  void deliver(SenderWorld world, std::size_t pair, std::size_t index, std::size_t side);
  void breaks(const SenderWorld& world, std::size_t pair, std::size_t index);
  void timers(const SenderWorld& world, bool quiet);
  void check_quiet(const SenderWorld& world);
  void apply(SenderWorld world, std::size_t pair, int side, Event event, const Incoming& incoming = {});
  bool step_once(SenderWorld& world, std::size_t pair, int side, Event event, const Incoming& incoming);
  bool perform(SenderWorld& world, std::size_t pair, int side, Action action, const Incoming& incoming);
  void perform_ours(SenderWorld& world, std::size_t pair, Action action, const Incoming& incoming, bool& failed);
  void perform_theirs(SenderWorld& world, std::size_t pair, Action action, const Incoming& incoming);
  void join(SenderWorld& world, std::size_t pair);
  void leave(SenderWorld& world, std::size_t pair);
  void give_up(SenderWorld& world, std::size_t pair);
  void sender_event(SenderWorld& world, std::size_t pair, SenderEvent event);
  void grant(SenderWorld& world, std::size_t peer_number);
  void fault(const SenderWorld& world, const std::string& what);

  SenderOptions options_;
};

inline void SenderExplorer::fault(const SenderWorld& world, const std::string& what) {
  std::string text = what + " in";
  for (const Pair& pair : world.pairs) {
    text += describe(pair.world);
  }
  text += " after";
  for (const SenderMove& move : way()) {
    text += " " + std::to_string(move.pair + 1) + (move.side == kUs ? ":" : "!") + std::string(move.what);
  }
  found(std::move(text));
}

inline std::optional<std::string> SenderExplorer::explore() {
  SenderWorld start{};
  start.losses = options_.losses;
  start.failing_connects = options_.failing_connects;
  for (std::size_t i = 0; i < kPeers; ++i) {
    start.us(i).wants = options_.wants[i];
    start.us(i).closes = options_.our_closes[i];
    start.them(i).closes = options_.their_closes[i];
  }
  forget_channels(start);
  return search(start, [this](const SenderWorld& world) { expand(world); });
}

inline void SenderExplorer::forget_channels(SenderWorld& world) {
  for (Pair& pair : world.pairs) {
    pair.world.forget_channels();
    for (std::size_t i = 0; i < kChannels; ++i) {
      pair.named[i] = pair.world.channels[i].used != 0 ? pair.named[i] : Byte{0};
    }
  }
}

inline void SenderExplorer::expand(const SenderWorld& world) {
  bool retry_comes = false;
  for (std::size_t pair = 0; pair < kPeers; ++pair) {
    for (const int side : {kUs, kThem}) {
      main_thread_moves(world, pair, side);
      retry_comes = retry_comes || world.pairs[pair].world.peers[static_cast<std::size_t>(side)].timer == 1;
    }
    for (std::size_t i = 0; i < kChannels; ++i) {
      channel_moves(world, pair, i, 0);
      channel_moves(world, pair, i, 1);
    }
    if (world.pairs[pair].turn != 0) {
      SenderWorld next = world;
      next.pairs[pair].turn = 0;
      apply(next, pair, kUs, Event::kSenderReady);
    }
  }
  timers(world, is_quiet() && !retry_comes);
  if (is_quiet()) {
    check_quiet(world);
  }
  for (std::size_t pair = 0; pair < kPeers && world.losses > 0; ++pair) {
    for (std::size_t i = 0; i < kChannels; ++i) {
      breaks(world, pair, i);
    }
  }
}

inline void SenderExplorer::main_thread_moves(const SenderWorld& world, std::size_t pair, int side) {
  const auto index = static_cast<std::size_t>(side);
  const Peer& peer = world.pairs[pair].world.peers[index];
  const auto act = [&](Event event, auto change) {
    SenderWorld next = world;
    change(next.pairs[pair].world.peers[index]);
    apply(next, pair, side, event);
  };
  const bool at_rest = peer.must_destroy == 0 && peer.must_close == 0 && peer.state != State::kClosing;
  if (peer.wants > 0 && at_rest && peer.state == State::kClosed) {
    act(Event::kConnectWanted, [](Peer& p) { p.wants--, p.wanted = 1, p.has_target = 1; });
  }
  if (peer.must_post != 0) {
    act(Event::kReceivesPosted,
        [](Peer& p) { p.must_post = 0, p.posted = static_cast<Byte>(p.posted | 1U << p.incarnation); });
  }
  if (peer.must_close != 0) {
    act(Event::kCloseWanted, [](Peer& p) { p.must_close = 0, p.must_post = 0; });
  }
  if (peer.must_destroy != 0) {
    act(Event::kDestroyWanted, [](Peer& p) { p.must_destroy = 0; });
  }
  if (peer.closes > 0 && peer.state != State::kClosed && at_rest) {
    choose([&] { act(Event::kCloseWanted, [](Peer& p) { p.closes--, p.gave_up = 1, p.must_post = 0; }); });
  }
  const Peer& us = world.pairs[pair].world.peers[kUs];
  if (side == kThem && us.told_connected != 0 && us.linked_to == peer.incarnation && peer.linked_to == us.incarnation &&
      peer.state == State::kReplySent) {
    choose([&] { act(Event::kPeerSpoke, [](Peer&) {}); });
  }
}

inline void SenderExplorer::channel_moves(const SenderWorld& world, std::size_t pair, std::size_t index,
                                          std::size_t side) {
  const Channel& channel = world.pairs[pair].world.channels[index];
  if (channel.used == 0 || channel.open[side] == 0) {
    return;
  }
  if (channel.letters[side][0] != kNothing) {
    deliver(world, pair, index, side);
    return;
  }
  if ((channel.lost[side] == 0 && channel.open[1 - side] != 0) || (side == 1 && channel.accepted == 0)) {
    return;
  }
  const bool taken = side == 0 && channel.confirm_sent != 0 && channel.lost[side] == 0;
  apply(world, pair, static_cast<int>(side), taken ? Event::kConfirmTaken : Event::kChannelLost);
}

inline void SenderExplorer::deliver(SenderWorld world, std::size_t pair, std::size_t index, std::size_t side) {
  Channel& channel = world.pairs[pair].world.channels[index];
  std::array<Byte, 4>& letters = channel.letters[side];
  const Byte letter = letters[0];
  std::copy(letters.begin() + 1, letters.end(), letters.begin());
  letters.back() = kNothing;
  const int to = static_cast<int>(side);
  switch (letter) {
    case kRequest: {
      channel.accepted = 1;
      const Byte named = world.pairs[pair].named[index];
      if (world.them(pair).state == State::kClosed && named != 0 && !world.is_alive(named)) {
        move_ = {pair, kThem, "target is gone"};
        world.pairs[pair].world.refuse(static_cast<Byte>(index), kTargetGone);
        visit(world);
        break;
      }
      apply(world, pair, to, Event::kRequestArrived, {static_cast<Byte>(index), channel.ends, channel.attempt, named});
      break;
    }
    case kTarget:
    case kReply:
      apply(world, pair, to, letter == kTarget ? Event::kTargetArrived : Event::kReplyArrived,
            {kNoChannel, channel.reply_ends, channel.attempt, 0});
      break;
    case kConfirm:
      apply(world, pair, to, Event::kConfirmArrived);
      break;
    case kTargetGone:
      apply(world, pair, to, Event::kTargetGoneArrived);
      break;
    default:
      apply(world, pair, to, Event::kRefusalArrived);
      break;
  }
}

/// A channel breaks: what was on the way to either side may still arrive, or not.
inline void SenderExplorer::breaks(const SenderWorld& world, std::size_t pair, std::size_t index) {
  const Channel& before = world.pairs[pair].world.channels[index];
  if (before.used == 0 || before.lost[0] != 0) {
    return;
  }
  for (unsigned kept = 0; kept < 4; ++kept) {
    SenderWorld next = world;
    next.losses--;
    Channel& channel = next.pairs[pair].world.channels[index];
    channel.lost = {1, 1};
    for (std::size_t side = 0; side < 2; ++side) {
      if ((kept >> side & 1U) == 0) {
        channel.letters[side] = {};
      }
    }
    move_ = {pair, kUs, "channel breaks"};
    visit(next);
  }
}

inline void SenderExplorer::timers(const SenderWorld& world, bool quiet) {
  for (std::size_t pair = 0; pair < kPeers; ++pair) {
    for (const int side : {kUs, kThem}) {
      const Byte timer = world.pairs[pair].world.peers[static_cast<std::size_t>(side)].timer;
      if (timer == 1 || (timer == 2 && quiet)) {
        SenderWorld next = world;
        next.pairs[pair].world.peers[static_cast<std::size_t>(side)].timer = 0;
        apply(next, pair, side, timer == 1 ? Event::kRetryTimer : Event::kHandshakeTimer);
      }
    }
  }
}

/// Nothing more happens by itself: is everybody where they should be?
inline void SenderExplorer::check_quiet(const SenderWorld& world) {
  move_ = {};
  for (std::size_t pair = 0; pair < kPeers; ++pair) {
    for (const Peer& peer : world.pairs[pair].world.peers) {
      if (peer.state != State::kClosed && peer.state != State::kConnected) {
        fault(world, "stuck");
      }
    }
    const Peer& us = world.pairs[pair].world.peers[kUs];
    const Peer& them = world.pairs[pair].world.peers[kThem];
    if (us.wanted != 0 && us.state == State::kClosed && us.told_failed == 0 && us.gave_up == 0) {
      fault(world, "nobody was told");
    }
    if (options_.must_connect[pair] && us.wanted != 0 &&
        (us.state != State::kConnected || them.state != State::kConnected || us.linked_to != them.incarnation)) {
      fault(world, "not connected, although nothing went wrong");
    }
  }
  for (const Sender& sender : world.senders) {
    if (sender.state == SenderState::kConnecting || sender.line[0] != 0) {
      fault(world, "somebody is in line for ever");
    }
  }
}

}  // namespace fabric::model

#include "test/unit/sender_model_actions.h"
