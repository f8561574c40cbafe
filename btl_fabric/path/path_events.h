// SPDX-License-Identifier: BSD-3-Clause
//
// What the packet path tells the floor above, which decides what becomes of a link. All of it is rare: a message that
// comes or goes calls none of these.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace fabric {

class Link;
class SharedSendQueue;
struct LinkQueue;

/// Why a link is of no use any more.
struct LinkFailure {
  enum class Kind : std::uint8_t {
    kCompletion,   ///< `completion` says what went wrong
    kRefusedPost,  ///< verbs did not take a request: `error_number` is what it returned
    kBadPacket,    ///< `packet` breaks the protocol
    kNoMemory,     ///< for what the peer has asked for
    kDeviceEvent,  ///< `event`, of the queue pair
  };

  Kind kind;
  std::uint32_t qpn = 0;  ///< of our queue pair
  /// Somebody waits for what has failed: a callback is due.
  bool is_missed = true;
  ibv_wc completion{};  ///< valid are status, vendor_err and qp_num, as verbs has it for failed completions
  /// Of a goodbye over a shared send queue that is the first to fail: bytes there that it, and all before it, have used.
  std::uint64_t goodbye_carried = 0;
  int error_number = 0;
  std::span<const std::byte> packet{};
  ibv_event_type event{};
};

/// Called by whoever holds the context's lock, in the middle of the packet path: an implementation may fail or close any
/// link, call the upper layer, and call the packet path again, but destroys no link.
class PathEvents {
 public:
  /// Something waits on a link that is not up, and not for the user: the peer has asked for it.
  virtual void connection_wanted(Link& link) noexcept = 0;
  /// Told for each failed completion and each refused post, also of links that have failed before.
  virtual void link_failed(Link& link, const LinkFailure& failure) noexcept = 0;
  /// The same of a queue pair that the X queues of several links share. `link`: whose request it was, null if that is
  /// gone.
  virtual void sender_failed(SharedSendQueue& sends, Link* link, const LinkFailure& failure) noexcept = 0;
  /// Verbs has said of a request that the device is gone. Told for each; they count as posted.
  virtual void device_is_gone() noexcept = 0;
  /// The first message has come over a link: so the peer's end is up.
  virtual void peer_spoke(Link& link) noexcept = 0;
  /// The peer has said goodbye: it sends nothing more, and takes nothing more.
  virtual void goodbye_arrived(Link& link) noexcept = 0;
  /// Our goodbye has arrived, or its transfer has failed.
  virtual void goodbye_done(Link& link) noexcept = 0;
  /// The peer needs the link no more, and asks whether it may go: it sends nothing until it hears goodbye or kStay.
  virtual void rest_asked(Link& link) noexcept = 0;
  /// We have asked that, and the peer needs the link.
  virtual void rest_declined(Link& link) noexcept = 0;
  /// The peer says what it has taken, after a link has broken: PacketCounts::taken of each queue, perhaps not as it should be.
  virtual void counts_arrived(Link& link, std::span<const std::byte> counts) noexcept = 0;
  /// The peer says something to another endpoint of ours, by this link: a DetourHeader and what follows. False if it cannot be.
  [[nodiscard]] virtual bool detour_arrived(Link& link, std::span<std::byte> body) noexcept = 0;
  /// LinkHealing::resend() has sent again all that was to be.
  virtual void resent(Link& link) noexcept = 0;
  /// A CTS, or what should be one, has come over a queue.
  virtual void cts_received(LinkQueue& queue, std::span<const std::byte> packet) noexcept = 0;
  /// The receive of a handshake buffer (cpc::kHandshakeTag) is done, well or not.
  virtual void handshake_completed(const ibv_wc& completion) noexcept = 0;
  /// A message has come to a shared receive queue through a queue pair that no link has.
  virtual void unknown_queue_pair_spoke(std::uint32_t qpn, std::span<const std::byte> packet) noexcept = 0;

 protected:
  ~PathEvents() = default;
};

}  // namespace fabric
