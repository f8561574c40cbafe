// SPDX-License-Identifier: BSD-3-Clause
//
// The clear-to-send exchange: how two main threads find out that both have posted their receives, once their queue pairs
// are linked (connection_table.h, CPCs that exchange). Pure, like the connection table; the endpoint carries it out.
//
// A side posts all of its receives, then sends CTS. A side that has sent its CTS and has the peer's is clear: it may
// send. CTS is the first message on the first queue; the receive that takes it is the handshake buffer if that is a P
// queue, and one of the shared receives otherwise. Neither the message nor its receive counts in any CreditWindow.
//
// On iWARP the side that accepted a connection must not send first (RFC 5044, section 7.1: its peer is not known to be
// ready before its first message), and there is no "receiver not ready" either. There the passive side answers CTS; and since each queue pair is a
// connection of its own to which that applies, CTS goes over every queue, and has arrived when all have.
//
// No timer: a main thread that computes for a minute sends its CTS after a minute. A peer that is gone is noticed by the
// channel (PeerLeft) or by a failed transfer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace fabric::cpc {

enum class CtsState : std::uint8_t {
  kUnlinked,   ///< The queue pairs are not known to be up.
  kSpoken,     ///< Receives posted, CTS sent; the peer's is awaited.
  kListening,  ///< Receives posted; the peer must speak first.
  kClear,      ///< Both CTS exchanged: messages may go.
  kLost,       ///< The peer left, or broke the rules, before that.
};
inline constexpr std::size_t kCtsStates = 5;

enum class CtsEvent : std::uint8_t {
  kLinked,      ///< Upcall Linked, and every receive is posted.
  kCtsArrived,  ///< The peer's CTS is received. One that comes before kLinked is kept until then.
  kPeerLeft,    ///< Upcall PeerLeft.
};
inline constexpr std::size_t kCtsEvents = 3;

enum class CtsAction : std::uint8_t {
  kNone,
  kSendCts,
  kStartSending,  ///< The connection is usable.
  kFail,          ///< Report that the connection could not be made.
  kNotePeerLeft,  ///< What is sent from now on cannot arrive.
};
inline constexpr std::size_t kCtsActionKinds = 5;

struct CtsStep {
  CtsState next = CtsState::kLost;
  std::array<CtsAction, 2> actions{};
  std::string_view why;  ///< of a kFail: for the user
};

namespace cts_detail {

struct CtsRow {
  CtsState state;
  CtsEvent event;
  int may_speak_first;  ///< -1: either
  CtsStep step;
  [[nodiscard]] constexpr bool matches(CtsState from, CtsEvent what, bool may_speak) const noexcept {
    return state == from && event == what && (may_speak_first < 0 || (may_speak_first == 1) == may_speak);
  }
};

using enum CtsState;
using enum CtsEvent;
using enum CtsAction;

inline constexpr int kEither = -1;
inline constexpr int kMaySpeak = 1;
inline constexpr int kMustListen = 0;

// clang-format off
inline constexpr auto kCtsTable = std::to_array<CtsRow>({
  {kUnlinked,  CtsEvent::kLinked, kMaySpeak,   {kSpoken,    {kSendCts}, {}}},
  {kUnlinked,  CtsEvent::kLinked, kMustListen, {kListening, {}, {}}},
  {kUnlinked,  kCtsArrived,       kEither,     {kLost,      {kFail}, "protocol error: a CTS over queue pairs that are not linked"}},
  {kUnlinked,  kPeerLeft,         kEither,     {kLost,      {kFail}, "the peer closed the connection while it was being set up"}},

  {kSpoken,    kCtsArrived,       kEither,     {kClear,     {kStartSending}, {}}},
  {kSpoken,    CtsEvent::kLinked, kEither,     {kLost,      {kFail}, "protocol error: linked twice"}},
  {kSpoken,    kPeerLeft,         kEither,     {kLost,      {kFail}, "the peer closed the connection before it was ready to receive"}},

  {kListening, kCtsArrived,       kEither,     {kClear,     {kSendCts, kStartSending}, {}}},
  {kListening, CtsEvent::kLinked, kEither,     {kLost,      {kFail}, "protocol error: linked twice"}},
  {kListening, kPeerLeft,         kEither,     {kLost,      {kFail}, "the peer closed the connection before it was ready to receive"}},

  {kClear,     CtsEvent::kLinked, kEither,     {kLost,      {kFail}, "protocol error: linked twice"}},
  {kClear,     kCtsArrived,       kEither,     {kLost,      {kFail}, "protocol error: a second CTS"}},
  {kClear,     kPeerLeft,         kEither,     {kClear,     {kNotePeerLeft}, {}}},

  {kLost,      CtsEvent::kLinked, kEither,     {kLost,      {}, {}}},
  {kLost,      kCtsArrived,       kEither,     {kLost,      {}, {}}},
  {kLost,      kPeerLeft,         kEither,     {kLost,      {}, {}}},
});
// clang-format on

/// Every event in every state has exactly one row.
[[nodiscard]] constexpr bool cts_complete() noexcept {
  for (std::size_t state = 0; state < kCtsStates; ++state) {
    for (std::size_t event = 0; event < kCtsEvents; ++event) {
      for (const bool may_speak : {false, true}) {
        const auto matches = std::count_if(kCtsTable.begin(), kCtsTable.end(), [&](const CtsRow& row) {
          return row.matches(static_cast<CtsState>(state), static_cast<CtsEvent>(event), may_speak);
        });
        if (matches != 1) {
          return false;
        }
      }
    }
  }
  return true;
}

/// Nobody starts to send without having sent CTS, now or before, and nobody sends it twice.
[[nodiscard]] constexpr bool cts_goes_once() noexcept {
  return std::all_of(kCtsTable.begin(), kCtsTable.end(), [](const CtsRow& row) {
    const auto has = [&](CtsAction action) {
      return std::count(row.step.actions.begin(), row.step.actions.end(), action) != 0;
    };
    const auto sent = [](CtsState state) { return state == kSpoken || state == kClear; };
    const bool sends = has(kSendCts);
    const bool counted = row.step.next == kLost || sent(row.step.next) == (sent(row.state) || sends);
    return counted && !(sends && sent(row.state)) &&
           has(kStartSending) == (row.step.next == kClear && row.state != kClear);
  });
}

static_assert(cts_complete(), "a cell of the CTS table has no row, or several");
static_assert(cts_goes_once(), "a row of the CTS table sends CTS twice, or starts without it");

inline constexpr std::array<std::string_view, kCtsStates> kCtsStateNames{"Unlinked", "Spoken", "Listening", "Clear",
                                                                         "Lost"};
inline constexpr std::array<std::string_view, kCtsEvents> kCtsEventNames{"Linked", "CtsArrived", "PeerLeft"};
inline constexpr std::array<std::string_view, kCtsActionKinds> kCtsActionNames{"None", "SendCts", "StartSending",
                                                                               "Fail", "NotePeerLeft"};
}  // namespace cts_detail

/// What `event` leads to in `state`. `may_speak_first`: not the passive side of an iWARP connection.
[[nodiscard]] constexpr CtsStep cts_step(CtsState state, CtsEvent event, bool may_speak_first) noexcept {
  for (const cts_detail::CtsRow& row : cts_detail::kCtsTable) {
    if (row.matches(state, event, may_speak_first)) {
      return row.step;
    }
  }
  return {};
}

[[nodiscard]] constexpr std::string_view to_string(CtsState state) noexcept {
  return cts_detail::kCtsStateNames[static_cast<std::size_t>(state)];
}
[[nodiscard]] constexpr std::string_view to_string(CtsEvent event) noexcept {
  return cts_detail::kCtsEventNames[static_cast<std::size_t>(event)];
}
[[nodiscard]] constexpr std::string_view to_string(CtsAction action) noexcept {
  return cts_detail::kCtsActionNames[static_cast<std::size_t>(action)];
}

}  // namespace fabric::cpc
