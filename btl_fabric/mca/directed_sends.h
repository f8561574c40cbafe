// SPDX-License-Identifier: BSD-3-Clause
//
// Messages that go to a receive context of the peer that is not left to the sending thread: the message names it, or the
// peer's steering rules do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/mca/left_sends.h"
#include "btl_fabric/peer/endpoint.h"
#include "common/accounting/context_locks.h"

namespace fabric {

/// For all threads, except where noted. Messages are those of which Endpoint::is_directed().
class DirectedSends {
 public:
  /// `locks`: of the contexts.
  explicit DirectedSends(ContextLocks& locks) noexcept : locks_(locks) {}
  DirectedSends(const DirectedSends&) = delete;
  DirectedSends& operator=(const DirectedSends&) = delete;

  /// As Endpoint::send(). What may not wait for the context's lock is sent by whoever has it next.
  [[nodiscard]] int send(Endpoint& first, Fragment& fragment) noexcept;
  /// As Endpoint::send_immediately().
  [[nodiscard]] bool send_immediately(Endpoint& first, const ImmediateMessage& message, std::uint8_t order) noexcept;

  /// Sends what was left to a context. For whoever holds its lock.
  void send_what_was_left(unsigned context) noexcept {
    if (left_.has_some(context)) [[unlikely]] {
      send_left(context);
    }
  }
  /// The same of all contexts. For whoever holds all locks.
  void send_all_left() noexcept;

 private:
  /// Where a message goes, and what counts it.
  struct Direction {
    unsigned context;
    std::uint64_t Counters::*counter;  ///< null: nothing directs it
  };
  [[nodiscard]] Direction direction_of(const Endpoint& first, std::uint8_t order,
                                       mca_btl_base_tag_t tag) const noexcept;
  /// Among those of a context whose lock the thread holds.
  static void count(const Direction& direction, unsigned context) noexcept;
  void send_left(unsigned context) noexcept;

  ContextLocks& locks_;
  LeftSends left_;
};

}  // namespace fabric
