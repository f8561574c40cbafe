// SPDX-License-Identifier: BSD-3-Clause
//
// The world of the connection model: two peers and the channels between them, which behave like TCP connections.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cpc/core/connection_table.h"
#include "cpc/core/cts_table.h"

namespace fabric::model {

using cpc::State;
using Byte = std::uint8_t;

enum Letter : Byte { kNothing, kRequest, kReply, kConfirm, kRefuse, kCollision, kTarget, kTargetGone };

constexpr std::size_t kChannels = 8;
constexpr Byte kNoChannel = 0xff;

/// One TCP connection. Side 0 opened it. Plain bytes throughout: states are compared and hashed as such.
struct Channel {
  Byte used = 0;
  Byte opener = 0;  ///< peer number
  Byte attempt = 0;
  Byte ends = 0;  ///< of the opener
  Byte accepted = 0;
  std::array<Byte, 2> open{};                    ///< side still has it
  std::array<Byte, 2> lost{};                    ///< side will see an error after what it can still read
  std::array<std::array<Byte, 4>, 2> letters{};  ///< on the way *to* a side
  Byte reply_ends = 0;
  Byte confirm_sent = 0;
  Byte answered = 0;  ///< the opener has read REPLY
  Byte dialing = 0;   ///< it is not open yet: REQUEST has not left
};

struct Peer {
  State state = State::kClosed;
  Byte incarnation = 0;  ///< names the ends; 0: no queue pairs
  Byte made = 0;         ///< incarnations so far
  Byte linked_to = 0;    ///< the ends that ours are connected to
  Byte attempt = 0;
  Byte peer_attempt = 0;
  Byte channel = kNoChannel;
  Byte timer = 0;      ///< 1: retry, 2: handshake
  Byte must_post = 0;  ///< what the main thread has to do
  Byte must_close = 0;
  Byte must_destroy = 0;
  Byte wants = 0;  ///< connects that it will still ask for
  Byte wanted = 0;
  Byte closes = 0;   ///< closes that it may still do of its own accord
  Byte gave_up = 0;  ///< it closed of its own accord
  Byte posted = 0;   ///< bit n: incarnation n had its receives posted
  Byte told_connected = 0;
  Byte told_failed = 0;
  Byte request_left = 0;  ///< the other peer may know of a request of ours
  Byte has_target = 0;    ///< this connection object has been given a target by Connect

  // The CTS exchange, if there is one
  cpc::CtsState cts = cpc::CtsState::kUnlinked;
  Byte must_link = 0;       ///< upcall Linked is on its way to the main thread
  Byte must_hear_left = 0;  ///< upcall PeerLeft is
  Byte opened = 0;          ///< our REQUEST made the queue pairs that are up
  Byte handshakes = 0;      ///< bit n: incarnation n had its handshake buffer posted
  Byte cts_from = 0;        ///< our CTS is under way from this incarnation; 0: it is not
  Byte cts_to = 0;          ///< to this one
  Byte heard = 0;           ///< the peer's CTS came for this incarnation, of which the main thread does not know yet
};

struct World {
  std::array<Peer, 2> peers;
  std::array<Channel, kChannels> channels;
  Byte losses = 0;        ///< channels that may still break
  Byte local_errors = 0;  ///< verbs calls that may still fail
  Byte yields = 0;        ///< channels that may still be closed and opened again later

  [[nodiscard]] Peer& peer(int number) { return peers[static_cast<std::size_t>(number)]; }

  /// Opens a channel and sends REQUEST. False if there are more channels than the model holds.
  /// `dials`: REQUEST does not leave at once.
  [[nodiscard]] bool open_channel(int number, bool dials = false);
  void request_leaves(Byte index);
  /// The opener closes it to make room for others, and opens it again with the same REQUEST later.
  [[nodiscard]] bool yield_channel(int number);
  /// Sends on the channel that the peer has, if any. False if more is under way than the model holds.
  [[nodiscard]] bool send(int number, Letter letter);
  void close_channel(int number);
  /// The listening side of a new channel answers with one letter, or none, and closes it.
  void refuse(Byte index, Letter letter);
  /// Frees the channels that nobody has any more.
  void forget_channels();
};
static_assert(sizeof(World) == 2 * sizeof(Peer) + kChannels * sizeof(Channel) + 3,
              "padding would break the comparison");

inline std::string describe(const World& world) {
  std::string text;
  for (const Peer& peer : world.peers) {
    text.append(" [").append(to_string(peer.state)).append(" attempt ").append(std::to_string(peer.attempt));
    text.append(" ends ").append(std::to_string(peer.incarnation)).append(" linked to ");
    text.append(std::to_string(peer.linked_to)).append(" timer ").append(std::to_string(peer.timer)).append("]");
  }
  return text;
}

inline bool World::open_channel(int number, bool dials) {
  for (std::size_t i = 0; i < kChannels; ++i) {
    Channel& channel = channels[i];
    if (channel.used == 0) {
      channel.used = 1;
      channel.opener = static_cast<Byte>(number);
      channel.attempt = ++peer(number).attempt;
      channel.ends = peer(number).incarnation;
      channel.open = {1, 1};
      channel.dialing = 1;
      peer(number).channel = static_cast<Byte>(i);
      if (!dials) {
        request_leaves(static_cast<Byte>(i));
      }
      return true;
    }
  }
  return false;
}

inline void World::request_leaves(Byte index) {
  Channel& channel = channels[index];
  channel.dialing = 0;
  channel.letters[1][0] = kRequest;
  peer(channel.opener).request_left = 1;
}

inline bool World::yield_channel(int number) {
  close_channel(number);
  peer(number).attempt--;  // it is the same one
  return open_channel(number, true);
}

inline bool World::send(int number, Letter letter) {
  if (peer(number).channel == kNoChannel) {
    return true;
  }
  Channel& channel = channels[peer(number).channel];
  const std::size_t to = channel.opener == number ? 1 : 0;
  if (letter == kReply || letter == kTarget) {
    channel.reply_ends = peer(number).incarnation;
  }
  if (letter == kConfirm) {
    channel.confirm_sent = 1;
  }
  if (channel.open[to] == 0 || channel.lost[0] != 0) {
    // Nobody reads it, and who sent it will see an error instead of an orderly end.
    channel.lost[1 - to] = 1;
    return true;
  }
  for (Byte& slot : channel.letters[to]) {
    if (slot == kNothing) {
      slot = letter;
      return true;
    }
  }
  return false;
}

inline void World::close_channel(int number) {
  if (peer(number).channel == kNoChannel) {
    return;
  }
  Channel& channel = channels[peer(number).channel];
  const std::size_t side = channel.opener == number ? 0 : 1;
  channel.open[side] = 0;
  if (channel.letters[side][0] != kNothing) {
    channel.lost[1 - side] = 1;  // TCP resets a connection that is closed with data unread
  }
  channel.letters[side] = {};
  peer(number).channel = kNoChannel;
}

inline void World::refuse(Byte index, Letter letter) {
  Channel& channel = channels[index];
  if (letter != kNothing && channel.open[0] != 0 && channel.lost[0] == 0) {
    channel.letters[0][0] = letter;
  }
  channel.open[1] = 0;
  channel.letters[1] = {};
}

inline void World::forget_channels() {
  for (Channel& channel : channels) {
    const bool request_waits = channel.open[1] != 0 && channel.accepted == 0 && channel.letters[1][0] != kNothing;
    const bool listener_has_it = channel.open[1] != 0 && channel.accepted != 0;
    if (channel.used != 0 && channel.open[0] == 0 && !request_waits && !listener_has_it) {
      channel = Channel();
    }
  }
}

}  // namespace fabric::model
