// SPDX-License-Identifier: BSD-3-Clause
//
// How a link that has broken is made anew, and every message arrives exactly once. A queue pair delivers in order, so what one side
// has taken off it, a number, tells the other what has arrived. Both count the packets of a queue as long as there is the endpoint.
// When a link breaks its queue pairs are put into the error state and emptied; then what has been taken is final. Over the next
// link each side tells its counts first (PacketKind::kCounts), and sends again what the other does not have, in order. Packets are kept
// until their completions come, those that the device copies as copies (kept_packets.h). Reads and writes are made again: nobody
// may use their memory before they have ended. What goes as a message, such as the component's own atomics, is executed once. Of
// an atomic of the device that has not ended nobody can tell whether it has been executed, and the link cannot be made anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/path/backlog.h"
#include "btl_fabric/path/link.h"

namespace fabric {

/// A link, for that purpose. Belongs to whoever holds the context's lock.
class LinkHealing {
 public:
  explicit LinkHealing(Link& link) noexcept : link_(link) {}

  // ---- The link that has broken

  /// It can be made anew, as far as is known now.
  [[nodiscard]] bool is_whole() const noexcept;
  /// A packet that fails is kept: the link has broken, or may.
  [[nodiscard]] bool keeps() const noexcept;
  /// Nothing more is posted, and nobody hears of what is under way. Gives what has not been posted.
  void break_off(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept;
  /// Moves the queue pairs to the error state once more. What was posted after they had been moved there is flushed too then: by
  /// rxe not otherwise (Linux 6.1, librxe posts receives without a call of the kernel's).
  void flush_again() noexcept;
  /// It is drained: takes what the peer has written to its ring.
  void take_ring() noexcept;
  /// After that: puts what the peer may not have before what is there already.
  void collect(Backlog& backlog);
  [[nodiscard]] const std::shared_ptr<LinkRdma::Atomics>& atomics() const noexcept;
  /// Answers that we owe the peer beside those that the link owes already. From now on they are tried.
  void owe(std::vector<AtomicReply> replies);

  // ---- The one that takes its place

  /// Of what the two sides count apart: each queue, and the ring.
  [[nodiscard]] static std::size_t counts_of(Link& link) noexcept { return link.queues().size() + 1; }
  /// Counts go on: `counts` by place, of the endpoint, and then of the ring. Before anything is posted.
  void continue_from(PacketCounts* counts) noexcept;
  /// The peer owes answers to atomics that went by links before.
  void use_atomics(const std::shared_ptr<LinkRdma::Atomics>& atomics) noexcept;
  /// It is up, but sends only what the next three do.
  void begin() noexcept;
  /// Tells the peer what has been taken, which is final but for what comes by this link (of X queues: by the peer's newest
  /// connection). `number`: of telling, counted up, so that what is told by another way (peer/endpoint_detour.cc) and comes late is
  /// known to be old.
  void tell_counts(std::uint32_t number) noexcept;
  [[nodiscard]] bool has_told() const noexcept;
  /// Drops what has arrived, and tells whoever waits for it: the peer has taken `taken`, in the order of the endpoint's `counts`. False
  /// if that cannot be. For all its links, and for none.
  [[nodiscard]] static bool drop_arrived(Backlog& backlog, std::span<PacketCounts> counts,
                                         std::span<const std::uint32_t> taken, const UpperHandles& upper) noexcept;
  /// After that, with no link that carries: what is left may go by other ways, and its numbers are given to others.
  static void unnumber(Backlog& backlog, std::span<PacketCounts> counts) noexcept;
  /// Sends what is left again, with the next calls of progress(); PathEvents::resent() says when all is posted. The backlog stays
  /// until then, or until this link is broken off.
  void resend(Backlog& backlog) noexcept;

  /// Ends what is in a backlog that nobody will send. Whoever waits for a message of it hears `status`; without one nobody hears
  /// anything. Reads and writes that somebody waits for end with an error.
  static void end_all(Backlog& backlog, PacketPath& path, const UpperHandles& upper,
                      std::optional<int> status) noexcept;

  // For the packet path
  void say_counts() noexcept;
  void send_more() noexcept;

 private:
  [[nodiscard]] bool send_as_many(std::deque<Backlog::Packet>& packets, LinkQueue* queue) noexcept;
  void send_again(LinkQueue& queue, Backlog::Packet& packet) noexcept;
  [[nodiscard]] std::size_t queue_index_for(const Backlog::Packet& packet) const noexcept;

  Link& link_;
};

}  // namespace fabric
