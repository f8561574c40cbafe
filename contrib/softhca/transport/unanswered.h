// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Messages that nobody answers: datagrams and raw packets. What goes wrong at the destination is its own matter.
#include "transport/message.h"

namespace softhca {

// Where such a message comes to. Its lock is held.
struct Unanswered {
  Owner owner;
  QpShared& dest;
  Arrival arrival;

  Unanswered(const Message& message, Slot& slot, unsigned slot_number, uint32_t incarnation, QpShared& destination);
  // Takes a receive request. False: there is none, and the message is lost.
  [[nodiscard]] bool take(const Message& message);
  // Copies the bytes and completes the request: `completion` has the opcode, flags and so on.
  void deliver(const Message& message, std::span<const iovec> bytes, CqEntry& completion);
};

}  // namespace softhca
