// SPDX-License-Identifier: BSD-3-Clause
//
// Why two peers that follow these rules never wait for each other forever. Let A send to B, be out of credits, and let
// nothing be under way. B's queue has n receives now. Each of them is then either missing (consumed, not posted again) or
// owed (posted again, A does not know). `low` and `win` are rd_low and rd_win in proportion to n.
//
// 1. B owes enough. B posts all that is missing once `low` or fewer receives are posted, so that (as soon as it has
//    buffers) at most n - low - 1 are missing. At least low + 1 are owed then. A `win` above that might never be
//    reached: hence the threshold is min(win, low + 1), and an explicit message is due.
// 2. B may send it, unless all rd_rsv reserved receives of A are used up in B's books. Suppose they are. The explicit
//    message that used the last one gave A at least one credit, and A spent its last credit later. sendable() let it do
//    so only because not all reserved receives were consumed: one had been posted again, which that message or an
//    earlier one told B. So B's books have one left.
#include "common/accounting/credit_window.h"

#include <algorithm>
#include <cassert>

namespace fabric {

void CreditWindow::Receives::post(std::uint32_t count) noexcept {
  missing -= count;
  const std::uint32_t known = std::min(count, never_posted);
  never_posted -= known;
  owed += count - known;
}

CreditWindow::CreditWindow(const QueueSpec& spec) noexcept
    : send_credits_(spec.rd_init),
      explicit_left_(spec.rd_rsv),
      messages_(spec.rd_init),
      reserved_(spec.rd_rsv),
      most_(spec.rd_num),
      low_of_most_(spec.rd_low),
      win_of_most_(spec.rd_win),
      message_ledger_(spec.rd_init, spec.rd_init),
      reserved_ledger_(spec.rd_rsv, spec.rd_rsv) {
  set_thresholds();
}

/// A queue that has not grown has lower thresholds, in proportion: it might never reach those of a full one.
void CreditWindow::set_thresholds() noexcept {
  if (most_ == 0) {
    return;  // it is no P queue
  }
  rd_low_ = in_proportion(low_of_most_, messages_.full, most_);
  explicit_threshold_ = std::max(1U, std::min(in_proportion(win_of_most_, messages_.full, most_), rd_low_ + 1));
}

void CreditWindow::grow(std::uint32_t count) noexcept {
  assert(count <= most_ - messages_.full && messages_.never_posted == 0);
  messages_.full += count;
  messages_.missing += count;
  message_ledger_.grow(count);
  set_thresholds();
  check_ledgers();
}

void CreditWindow::check_both_ledgers() const noexcept {
  if (const std::string wrong = message_ledger_.check(messages_.owed, messages_.consumed(), send_credits_);
      !wrong.empty()) {
    ledger_is_wrong("a P queue's messages", wrong);
  }
  if (const std::string wrong = reserved_ledger_.check(reserved_.owed, reserved_.consumed(), explicit_left_);
      !wrong.empty()) {
    ledger_is_wrong("a P queue's credit messages", wrong);
  }
}

void CreditWindow::return_credit() noexcept {
  assert(send_credits_ < most_);
  ++send_credits_;
  message_ledger_.returned(1);
  check_ledgers();
}

void CreditWindow::return_grant(CreditGrant grant) noexcept {
  messages_.owed += grant.credits;
  reserved_.owed += grant.explicit_seen;
  message_ledger_.arrived(grant.credits);
  reserved_ledger_.arrived(grant.explicit_seen);
  check_ledgers();
}

void CreditWindow::take_explicit() noexcept {
  assert(explicit_left_ > 0);
  --explicit_left_;
  reserved_ledger_.spent(1);
  check_ledgers();
}

void CreditWindow::return_explicit() noexcept {
  assert(explicit_left_ < reserved_.full);
  ++explicit_left_;
  reserved_ledger_.returned(1);
  check_ledgers();
}

void CreditWindow::posted(std::uint32_t count) noexcept {
  assert(count <= messages_.missing + reserved_.missing);
  // Reserved ones first. They are few, and go missing again only when the peer returns credits. Messages first would
  // starve them while buffers are short and messages keep coming: the peer could not return our credits any more.
  const std::uint32_t reserved = std::min(count, reserved_.missing);
  reserved_.post(reserved);
  messages_.post(std::min(count - reserved, messages_.missing));
  check_ledgers();
}

}  // namespace fabric
