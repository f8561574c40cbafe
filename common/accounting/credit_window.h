// SPDX-License-Identifier: BSD-3-Clause
//
// The credits of one P queue of one connection, both directions. A credit is the promise that a receive buffer is
// posted for one message, so that a sender who holds one never meets "receiver not ready". credit_window.cc says why
// peers that keep to these rules cannot deadlock.
//
// A connection begins with rd_init receives. A peer that runs out of credits says so (PacketHeader::notes), and the queue
// grows, up to rd_num: grow(). The peer gets the new credits in the same way as those that come back.
//
// Credits come back in the header of any message on the queue, or, when nothing goes that way, in an explicit credit
// message. Explicit messages need no credit: `rd_rsv` further receives are kept for them, and the sender counts those
// too (`explicit_seen` gives them back), so they are never lost either.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>

#include "common/accounting/credit_ledger.h"
#include "common/accounting/receive_queues.h"

namespace fabric {

/// What the header of a message on a P queue gives back to its receiver.
struct CreditGrant {
  std::uint16_t credits = 0;        ///< message receives posted since the last grant
  std::uint16_t explicit_seen = 0;  ///< reserved receives posted again since the last grant
  bool operator==(const CreditGrant&) const = default;
};

/// A type of its own, so that two that are empty can share an address.
struct ReservedLedger : WindowLedger {
  using WindowLedger::WindowLedger;
};

/// Not thread-safe: belongs to whoever holds the endpoint.
class CreditWindow {
 public:
  /// `spec` must be a checked P queue. At first nothing is posted, and the peer's initial rd_init credits are counted as
  /// given: both sides start from the same list. The peer must not be told to start before receives_to_post() is 0.
  explicit CreditWindow(const QueueSpec& spec) noexcept;

  // Sending
  /// Messages that may be sent now; receive() and posted() can raise it. The last credit is kept back while all
  /// reserved receives are consumed: the message that takes it must give one back, or the peer cannot send credits any
  /// more.
  [[nodiscard]] std::uint32_t sendable() const noexcept {
    return send_credits_ == 1 && reserved_.consumed() == reserved_.full ? 0 : send_credits_;
  }
  /// Takes one credit for a message. sendable() must not be 0.
  void take_credit() noexcept {
    assert(send_credits_ > 0);
    --send_credits_;
    message_ledger_.spent(1);
    check_ledgers();
  }
  /// Gives back a credit whose message could not be posted.
  void return_credit() noexcept;
  /// What to put into the header of the message that goes out now.
  [[nodiscard]] CreditGrant take_grant() noexcept {
    if ((messages_.owed | reserved_.owed) == 0) {
      return {};
    }
    const CreditGrant grant{.credits = header_share(messages_.owed), .explicit_seen = header_share(reserved_.owed)};
    messages_.owed -= grant.credits;
    reserved_.owed -= grant.explicit_seen;
    message_ledger_.granted(grant.credits);
    reserved_ledger_.granted(grant.explicit_seen);
    check_ledgers();
    return grant;
  }
  /// Takes back a grant whose message could not be posted.
  void return_grant(CreditGrant grant) noexcept;

  /// True when an explicit credit message should go out now: the peer may be waiting for credits, and a reserved
  /// receive is left at the peer. Its grant comes from take_grant(), after take_explicit(). Send none that is not due:
  /// a peer counts on at least one credit in each.
  [[nodiscard]] bool explicit_due() const noexcept {
    return messages_.owed >= explicit_threshold_ && explicit_left_ > 0;
  }
  void take_explicit() noexcept;
  void return_explicit() noexcept;

  // Receiving
  /// A message (is_explicit: a credit message) arrived with this grant. False when the numbers cannot be true: the peer
  /// gives more than it ever took, or sent without a credit; the window is then left as it was.
  [[nodiscard]] bool receive(CreditGrant grant, bool is_explicit) noexcept {
    Receives& consumed = is_explicit ? reserved_ : messages_;
    if (!consumed.can_arrive() || !receive(grant)) {
      return false;
    }
    ++consumed.missing;
    is_explicit ? reserved_ledger_.arrived(1) : message_ledger_.arrived(1);
    check_ledgers();
    return true;
  }
  /// The same of a message that took no receive.
  [[nodiscard]] bool receive(CreditGrant grant) noexcept {
    if ((grant.credits | grant.explicit_seen) == 0) {
      return true;
    }
    if (grant.credits > most_ - send_credits_ || grant.explicit_seen > reserved_.full - explicit_left_) {
      return false;
    }
    send_credits_ += grant.credits;
    explicit_left_ += grant.explicit_seen;
    message_ledger_.returned(grant.credits);
    reserved_ledger_.returned(grant.explicit_seen);
    return true;
  }

  /// Receives that should be posted now, in one batch; 0 above the low watermark. Until the queue has been full once:
  /// all that are missing.
  [[nodiscard]] std::uint32_t receives_to_post() const noexcept {
    if (messages_.missing + rd_low_ < messages_.full && reserved_.missing + messages_.never_posted == 0) [[likely]] {
      return 0;  // which is what the rest would say, for most messages
    }
    const bool filling = messages_.never_posted + reserved_.never_posted > 0;
    const bool few_left = messages_.full - messages_.missing <= rd_low_;
    const bool reserved_wanted = reserved_.missing > 0 && reserved_.missing * 4 >= reserved_.full;
    return filling || few_left || reserved_wanted ? messages_.missing + reserved_.missing : 0;
  }
  /// `count` receives were posted (at most receives_to_post(); fewer when buffers ran out, then ask and post again when
  /// there are some). Call it after the posting, and before the next take_grant().
  void posted(std::uint32_t count) noexcept;

  /// Receives of the queue at its present size, posted or not: those for messages, and rd_rsv.
  [[nodiscard]] std::uint32_t depth() const noexcept { return messages_.full + reserved_.full; }
  /// How many receives to add when the peer has run out of credits: as many as there are, up to rd_num in all.
  [[nodiscard]] std::uint32_t growth() const noexcept { return std::min(messages_.full, most_ - messages_.full); }
  /// Adds `count` receives, at most growth(), which are to be posted. All receives must have been posted once before.
  void grow(std::uint32_t count) noexcept;

  /// For whoever looks for lost credits: with nothing under way either way, the credits of one side and what is missing and owed
  /// at the other make up the depth of the other.
  struct Account {
    std::uint32_t credits;  ///< messages that the peer has receives for
    std::uint32_t depth;    ///< receives for messages of this side, posted or not
    std::uint32_t missing;  ///< of these, not posted now
    std::uint32_t owed;     ///< posted again, and the peer has not been told
  };
  [[nodiscard]] Account account() const noexcept {
    return {send_credits_, messages_.full, messages_.missing, messages_.owed};
  }

 private:
  /// The receives of one kind that this side keeps posted.
  struct Receives {
    explicit Receives(std::uint32_t count) noexcept : full(count), missing(count), never_posted(count) {}

    /// `count` of the missing ones were posted. The peer knows of those that were never posted before; others are owed.
    void post(std::uint32_t count) noexcept;
    [[nodiscard]] std::uint32_t consumed() const noexcept { return missing - never_posted; }
    /// True if the peer may have sent a message that takes one of them: one is posted, and the peer knew of one.
    [[nodiscard]] bool can_arrive() const noexcept { return missing < full && consumed() + owed < full; }

    std::uint32_t full;          ///< of messages rd_init at first, rd_num at most; rd_rsv of the others
    std::uint32_t missing;       ///< not posted now: never, or consumed
    std::uint32_t never_posted;  ///< of the missing ones; 0 once the queue has been full
    std::uint32_t owed = 0;      ///< posted again, the peer does not know yet
  };

  /// What a field of the header holds; the rest stays owed until the next message.
  [[nodiscard]] static std::uint16_t header_share(std::uint32_t owed) noexcept {
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(owed, std::numeric_limits<std::uint16_t>::max()));
  }
  void check_ledgers() const noexcept {
    if constexpr (kHasLedger) {
      check_both_ledgers();
    }
  }
  void check_both_ledgers() const noexcept;
  void set_thresholds() noexcept;

  std::uint32_t rd_low_ = 0;              ///< of the queue as it is now
  std::uint32_t explicit_threshold_ = 0;  ///< owe this many credits and an explicit message is due
  std::uint32_t send_credits_;            ///< messages that the peer has receives for
  std::uint32_t explicit_left_;           ///< explicit messages that the peer has receives for
  Receives messages_;
  Receives reserved_;  ///< for explicit messages
  // Of a queue that has grown as far as it may
  std::uint32_t most_;  ///< rd_num
  std::uint32_t low_of_most_;
  std::uint32_t win_of_most_;
  [[no_unique_address]] WindowLedger message_ledger_;
  [[no_unique_address]] ReservedLedger reserved_ledger_;
};

}  // namespace fabric
