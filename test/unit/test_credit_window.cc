// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <random>
#include <string>

#include "common/accounting/credit_window.h"
#include "test/unit/check_main.h"
#include "test/unit/credit_simulator.h"

namespace fabric {
namespace {

using test::CreditSimulator;

QueueSpec per_peer(std::uint32_t rd_num, std::uint32_t rd_low, std::uint32_t rd_win, std::uint32_t rd_rsv) {
  return {.kind = QueueKind::kPerPeer,
          .size = 128,
          .rd_num = rd_num,
          .rd_low = rd_low,
          .rd_win = rd_win,
          .rd_rsv = rd_rsv,
          .rd_init = rd_num};
}

/// A window after its first filling.
CreditWindow filled(const QueueSpec& spec) {
  CreditWindow window(spec);
  window.posted(window.receives_to_post());
  return window;
}

/// `count` messages arrive.
void receive_messages(CreditWindow& window, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    ck_assert(window.receive({}, false));
  }
}

START_TEST(the_first_filling_owes_nothing) {
  CreditWindow window(per_peer(8, 4, 4, 2));
  ck_assert_uint_eq(window.depth(), 10);
  ck_assert_uint_eq(window.sendable(), 8);
  ck_assert_uint_eq(window.receives_to_post(), 10);
  window.posted(7);  // above rd_low, but the peer counts on all
  ck_assert_uint_eq(window.receives_to_post(), 3);
  window.posted(3);
  ck_assert_uint_eq(window.receives_to_post(), 0);
  ck_assert(window.take_grant() == CreditGrant{});
  ck_assert(!window.explicit_due());
}
END_TEST

START_TEST(an_empty_queue_takes_nothing_but_keeps_its_credits) {
  CreditWindow window(per_peer(1, 0, 1, 1));
  ck_assert_uint_eq(window.sendable(), 1);
  ck_assert(!window.receive({}, false));
  ck_assert(!window.receive({}, true));
}
END_TEST

START_TEST(posts_again_at_the_low_watermark) {
  CreditWindow window = filled(per_peer(8, 4, 4, 2));
  receive_messages(window, 3);
  ck_assert_uint_eq(window.receives_to_post(), 0);
  receive_messages(window, 1);
  ck_assert_uint_eq(window.receives_to_post(), 4);
  window.posted(4);
  ck_assert_uint_eq(window.receives_to_post(), 0);
  ck_assert(window.take_grant() == (CreditGrant{.credits = 4, .explicit_seen = 0}));
  ck_assert(window.take_grant() == CreditGrant{});
}
END_TEST

START_TEST(posts_reserved_receives_by_the_quarter) {
  CreditWindow window = filled(per_peer(8, 4, 4, 8));
  receive_messages(window, 1);
  ck_assert(window.receive({}, true));
  ck_assert_uint_eq(window.receives_to_post(), 0);
  ck_assert(window.receive({}, true));
  ck_assert_uint_eq(window.receives_to_post(), 3);
  window.posted(3);
  ck_assert(window.take_grant() == (CreditGrant{.credits = 1, .explicit_seen = 2}));
}
END_TEST

START_TEST(posts_reserved_receives_first) {
  CreditWindow window = filled(per_peer(8, 4, 4, 2));
  receive_messages(window, 4);
  ck_assert(window.receive({}, true));
  window.posted(1);
  ck_assert(window.take_grant() == (CreditGrant{.credits = 0, .explicit_seen = 1}));
  ck_assert_uint_eq(window.receives_to_post(), 4);
  window.posted(4);
  ck_assert(window.take_grant() == (CreditGrant{.credits = 4, .explicit_seen = 0}));
}
END_TEST

START_TEST(counts_credits) {
  CreditWindow window = filled(per_peer(2, 1, 1, 1));
  window.take_credit();
  window.take_credit();
  ck_assert_uint_eq(window.sendable(), 0);
  window.return_credit();
  ck_assert_uint_eq(window.sendable(), 1);
  window.take_credit();
  ck_assert(window.receive({.credits = 2, .explicit_seen = 0}, false));
  ck_assert_uint_eq(window.sendable(), 2);
}
END_TEST

START_TEST(returned_grants_go_out_again) {
  CreditWindow window = filled(per_peer(8, 4, 4, 1));
  receive_messages(window, 4);
  ck_assert(window.receive({}, true));
  window.posted(5);
  const CreditGrant grant = window.take_grant();
  ck_assert(grant == (CreditGrant{.credits = 4, .explicit_seen = 1}));
  window.return_grant(grant);
  ck_assert(window.explicit_due());
  ck_assert(window.take_grant() == grant);
}
END_TEST

START_TEST(explicit_messages_are_due_at_rd_win) {
  CreditWindow window = filled(per_peer(8, 7, 2, 1));
  receive_messages(window, 1);
  window.posted(1);
  ck_assert(!window.explicit_due());
  receive_messages(window, 1);
  window.posted(1);
  ck_assert(window.explicit_due());
  window.take_explicit();
  ck_assert(!window.explicit_due());  // none left
  window.return_explicit();
  ck_assert(window.explicit_due());
  window.take_explicit();
  ck_assert(window.take_grant() == (CreditGrant{.credits = 2, .explicit_seen = 0}));
  receive_messages(window, 2);
  window.posted(2);
  ck_assert(!window.explicit_due());
  ck_assert(window.receive({.credits = 0, .explicit_seen = 1}, false));
  ck_assert(window.explicit_due());
}
END_TEST

START_TEST(an_rd_win_out_of_reach_does_not_count) {
  // With nothing under way, the worst case is one message short of the watermark.
  for (std::uint32_t rd_num = 1; rd_num < 40; ++rd_num) {
    for (std::uint32_t rd_low = 0; rd_low < rd_num; ++rd_low) {
      CreditWindow window = filled(per_peer(rd_num, rd_low, 1000, 1));
      receive_messages(window, rd_num);  // the peer has used up its credits
      window.posted(rd_low + 1);         // and buffers ran out just above the watermark
      ck_assert_uint_eq(window.receives_to_post(), 0);
      ck_assert_msg(window.explicit_due(), "rd_num %u rd_low %u", rd_num, rd_low);
    }
  }
}
END_TEST

START_TEST(the_last_credit_waits_for_a_reserved_receive) {
  CreditWindow window = filled(per_peer(2, 1, 1, 1));
  window.take_credit();
  ck_assert_uint_eq(window.sendable(), 1);
  ck_assert(window.receive({}, true));
  ck_assert_uint_eq(window.sendable(), 0);
  window.posted(window.receives_to_post());
  ck_assert_uint_eq(window.sendable(), 1);
  ck_assert_uint_eq(window.take_grant().explicit_seen, 1);
}
END_TEST

START_TEST(refuses_grants_of_more_than_was_taken) {
  CreditWindow window = filled(per_peer(8, 4, 4, 2));
  window.take_credit();
  window.take_explicit();
  ck_assert(!window.receive({.credits = 2, .explicit_seen = 0}, false));
  ck_assert(!window.receive({.credits = 1, .explicit_seen = 2}, false));
  ck_assert(!window.receive({.credits = 65535, .explicit_seen = 65535}, true));
  ck_assert_uint_eq(window.sendable(), 7);  // as it was
  ck_assert(window.receive({.credits = 1, .explicit_seen = 1}, false));
  ck_assert_uint_eq(window.sendable(), 8);
}
END_TEST

START_TEST(refuses_messages_without_a_credit) {
  CreditWindow window = filled(per_peer(2, 1, 1, 1));
  receive_messages(window, 2);
  ck_assert(!window.receive({}, false));
  ck_assert(window.receive({}, true));
  ck_assert(!window.receive({}, true));
  // Posted, but the peer was not told.
  window.posted(window.receives_to_post());
  ck_assert(!window.receive({}, false));
  ck_assert(!window.receive({}, true));
  ck_assert(window.take_grant() == (CreditGrant{.credits = 2, .explicit_seen = 1}));
  ck_assert(window.receive({}, false));
  ck_assert(window.receive({}, true));
}
END_TEST

START_TEST(grants_fit_the_header) {
  CreditWindow window = filled(per_peer(70000, 0, 1, 1));  // more than the parser allows
  receive_messages(window, 70000);
  window.posted(70000);
  ck_assert_uint_eq(window.take_grant().credits, 65535);
  ck_assert_uint_eq(window.take_grant().credits, 70000 - 65535);
  ck_assert_uint_eq(window.take_grant().credits, 0);
}
END_TEST

START_TEST(grows_from_its_first_size) {
  QueueSpec spec = per_peer(8, 4, 4, 2);
  spec.rd_init = 2;
  CreditWindow window = filled(spec);
  ck_assert_uint_eq(window.depth(), 4);
  ck_assert_uint_eq(window.sendable(), 2);  // and so are the peer's
  receive_messages(window, 1);
  ck_assert_uint_eq(window.receives_to_post(), 1);  // half of them are left, as rd_low has it
  ck_assert_uint_eq(window.growth(), 2);
  window.grow(2);
  ck_assert_uint_eq(window.receives_to_post(), 3);
  window.posted(3);
  ck_assert_uint_eq(window.depth(), 6);
  ck_assert(window.explicit_due());
  ck_assert_uint_eq(window.take_grant().credits, 3);  // the one that was taken, and the new ones
  ck_assert_uint_eq(window.growth(), 4);
  window.grow(4);
  ck_assert_uint_eq(window.growth(), 0);
}
END_TEST

START_TEST(takes_credits_of_a_peer_that_grows) {
  QueueSpec spec = per_peer(8, 4, 4, 2);
  spec.rd_init = 2;
  CreditWindow window = filled(spec);
  ck_assert(window.receive({.credits = 6, .explicit_seen = 0}));
  ck_assert_uint_eq(window.sendable(), 8);
  ck_assert(!window.receive({.credits = 1, .explicit_seen = 0}));  // more than rd_num
}
END_TEST

/// Small numbers are where the corners are; some larger ones too.
QueueSpec random_spec(std::mt19937& random) {
  const auto up_to = [&random](std::uint32_t most) { return static_cast<std::uint32_t>(random() % (most + 1)); };
  const std::uint32_t rd_num = 1 + up_to(up_to(3) == 0 ? 63 : 7);
  QueueSpec spec = per_peer(rd_num, up_to(rd_num - 1), 1 + up_to(3 * rd_num), 1 + up_to(up_to(1) * 8));
  spec.rd_init = up_to(1) == 0 ? rd_num : 1 + up_to(rd_num - 1);
  return spec;
}

/// Runs 2,000 random specs and schedules. Returns the first problem with what is needed to see it again, or nothing.
template <class Window>
std::string simulate() {
  std::mt19937 random(20240601);
  unsigned stalls = 0;
  unsigned growths = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const QueueSpec spec = random_spec(random);
    const unsigned messages = 10 * spec.rd_num + 50;
    CreditSimulator<Window> simulator(spec, seed);
    const std::string problem = simulator.run(messages, seed % 2 == 0 ? 0 : messages);
    if (!problem.empty()) {
      return problem + ": seed " + std::to_string(seed) + ", P,128," + std::to_string(spec.rd_num) + "," +
             std::to_string(spec.rd_low) + "," + std::to_string(spec.rd_win) + "," + std::to_string(spec.rd_rsv) + "," +
             std::to_string(spec.rd_init);
    }
    stalls += simulator.stalls();
    growths += simulator.growths();
  }
  return stalls > 2000 && growths > 1000 ? "" : "the schedules hardly ever use up the credits";
}

START_TEST(two_peers_neither_deadlock_nor_overrun) {
  const std::string problem = simulate<CreditWindow>();
  ck_assert_msg(problem.empty(), "%s", problem.c_str());
}
END_TEST

/// Like a threshold of rd_num + 1: never reached.
struct NoExplicitMessages : CreditWindow {
  using CreditWindow::CreditWindow;
  [[nodiscard]] bool explicit_due() const noexcept { return false; }
};

/// Spends its last credit although it has no reserved receive to give back.
struct NoKeptCredit : CreditWindow {
  explicit NoKeptCredit(const QueueSpec& spec) : CreditWindow(spec), credits(spec.rd_init) {}
  [[nodiscard]] std::uint32_t sendable() const noexcept { return credits; }
  void take_credit() noexcept {
    --credits;
    CreditWindow::take_credit();
  }
  void return_credit() noexcept {
    ++credits;
    CreditWindow::return_credit();
  }
  bool receive(CreditGrant grant, bool is_explicit) noexcept {
    credits += grant.credits;
    return CreditWindow::receive(grant, is_explicit);
  }
  std::uint32_t credits;
};

/// Keeps the threshold of a full queue while it is small.
struct FixedThreshold : CreditWindow {
  explicit FixedThreshold(const QueueSpec& given) : CreditWindow(given), spec(given) {}
  [[nodiscard]] bool explicit_due() const noexcept {
    CreditWindow copy = *this;
    return CreditWindow::explicit_due() && copy.take_grant().credits >= std::min(spec.rd_win, spec.rd_low + 1);
  }
  QueueSpec spec;
};

/// Forgets one reserved receive that it posted again, from time to time.
struct LosesReserved : CreditWindow {
  using CreditWindow::CreditWindow;
  CreditGrant take_grant() noexcept {
    CreditGrant grant = CreditWindow::take_grant();
    grant.explicit_seen = std::min<std::uint16_t>(grant.explicit_seen, 1);
    return grant;
  }
};

/// Gives a credit too many.
struct GrantsTooMuch : CreditWindow {
  using CreditWindow::CreditWindow;
  CreditGrant take_grant() noexcept {
    CreditGrant grant = CreditWindow::take_grant();
    grant.credits = static_cast<std::uint16_t>(grant.credits + (grant.credits > 1 ? 1 : 0));
    return grant;
  }
};

void check_found(const std::string& problem, const std::string& expected) {
  ck_assert_msg(problem.rfind(expected, 0) == 0, "found '%s'", problem.c_str());
}

START_TEST(the_simulation_finds_broken_windows) {
  check_found(simulate<NoExplicitMessages>(), "deadlock");
  check_found(simulate<NoKeptCredit>(), "deadlock");
  check_found(simulate<FixedThreshold>(), "deadlock");
  check_found(simulate<LosesReserved>(), "sums are not conserved");
  check_found(simulate<GrantsTooMuch>(), "sums are not conserved");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "credit_window",
      {the_first_filling_owes_nothing, an_empty_queue_takes_nothing_but_keeps_its_credits,
       posts_again_at_the_low_watermark, posts_reserved_receives_by_the_quarter, posts_reserved_receives_first,
       counts_credits, returned_grants_go_out_again, explicit_messages_are_due_at_rd_win,
       an_rd_win_out_of_reach_does_not_count, the_last_credit_waits_for_a_reserved_receive,
       refuses_grants_of_more_than_was_taken, refuses_messages_without_a_credit, grants_fit_the_header,
       grows_from_its_first_size, takes_credits_of_a_peer_that_grows, two_peers_neither_deadlock_nor_overrun,
       the_simulation_finds_broken_windows});
}
