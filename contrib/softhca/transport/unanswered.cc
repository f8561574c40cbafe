// SPDX-License-Identifier: BSD-3-Clause
#include "transport/unanswered.h"

namespace softhca {

Unanswered::Unanswered(const Message& message, Slot& slot, unsigned slot_number, uint32_t incarnation,
                       QpShared& destination)
    : owner{&slot, slot_number, incarnation, destination.pd, nullptr, 0, destination.recv_cq}, dest(destination) {
  if (dest.srq != 0) owner.srq = &slot.srqs[(dest.srq - 1) % kSrqsPerSlot];
  arrival.kill_at = message.kill_at;
}

bool Unanswered::take(const Message& message) {
  if (dest.taken_valid.load(std::memory_order_relaxed) != 0) take_from_dead(message.fabric, owner, dest);
  if (!softhca::take(message.fabric, owner, dest, arrival)) return false;
  if (message.kill_at == KillAt::Middle) kill_this_process();
  return true;
}

void Unanswered::deliver(const Message& message, std::span<const iovec> bytes, CqEntry& completion) {
  uint32_t events = kQpFlush;
  switch (softhca::deliver(message.fabric, owner, dest, arrival, bytes, completion)) {
    case Delivery::Done:
      dest.arrived.count(message.request.length, 0);
      return;
    case Delivery::SenderFault:
    case Delivery::SenderNoRoom:
    case Delivery::NoRoom:
    case Delivery::Lost:
      return;
    case Delivery::Overrun:
      events |= kQpFatal;
      break;
    case Delivery::TooLong:
    case Delivery::ReceiverFault:
      break;
  }
  dest.state.store(IBV_QPS_ERR, std::memory_order_release);
  tell_owner(message.fabric, owner.number, *owner.slot, dest, events);
}

}  // namespace softhca
