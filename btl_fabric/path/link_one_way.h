// SPDX-License-Identifier: BSD-3-Clause
//
// Links of X queues that break. What goes out and what comes in are two connections, and either may break without the other. When
// the queue pair breaks that this process sends through, all links that share it do; each leaves its receiving half to the link
// that takes its place. What the receiver has taken is final as soon as it knows the sender's next connection, since what comes
// through another queue pair than that one's is dropped. So a sender whose connection has been made anew asks, over that connection,
// and the peer answers over its own, which may be broken at that time. Question and answer name the connection.
#pragma once

#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/path/link.h"

namespace fabric {

/// A link of X queues, for that purpose. Belongs to whoever holds the context's lock.
class LinkOneWay {
 public:
  explicit LinkOneWay(Link& link) noexcept : link_(link) {}

  /// The link sends nothing more. What the peer sends, and what it is owed for that, is from now on the business of `next`, which is
  /// new.
  void leave_receiving_to(Link& next) noexcept;
  /// Moves the queue pair that it sends through to the error state: the next connection goes through another one. Others that share
  /// it hear of that by what they have under way, or by what they send next.
  void break_sender() noexcept;

  /// The peer says its counts. True if it asks for ours too.
  [[nodiscard]] bool hear(const CountsOfOneWay& told) noexcept;
  /// They answer the question that this link has asked.
  [[nodiscard]] bool has_asked_for(const CountsOfOneWay& told) const noexcept;
  /// Ours are to be told.
  [[nodiscard]] bool owes_counts() const noexcept { return link_.owes_counts_; }

 private:
  Link& link_;
};

}  // namespace fabric
