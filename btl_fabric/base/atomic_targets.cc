// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/atomic_targets.h"

namespace fabric {

namespace {

template <class T>
void execute_on(const AtomicMessage& message, AtomicReply& reply) noexcept {
  const auto old = execute_atomic(*reinterpret_cast<T*>(message.address), static_cast<AtomicOp>(message.op),
                                  static_cast<T>(message.operand), static_cast<T>(message.compare));
  reply.done = old.has_value();
  reply.value = old.value_or(0);
}

}  // namespace

void AtomicTargets::add(std::uint32_t rkey, std::uintptr_t first, std::uintptr_t last) {
  const std::lock_guard guard(mutex_);
  ranges_[rkey] = {first, last};
}

void AtomicTargets::remove(std::uint32_t rkey, std::uintptr_t first) noexcept {
  const std::lock_guard guard(mutex_);
  if (const auto found = ranges_.find(rkey); found != ranges_.end() && found->second.first == first) {
    ranges_.erase(found);
  }
}

bool AtomicTargets::allows(const AtomicMessage& message) const noexcept {
  const std::lock_guard guard(mutex_);
  const auto found = ranges_.find(message.rkey);
  const std::uint64_t address = message.address;
  if (found == ranges_.end() || address % message.bytes() != 0) {
    return false;
  }
  const auto [first, last] = found->second;
  return address >= first && address <= last && last - address >= message.bytes() - 1;
}

AtomicReply AtomicTargets::execute(const AtomicMessage& message) const noexcept {
  AtomicReply reply{message.place, message.serial, 0, false};
  if (!allows(message)) {
    return reply;
  }
  if (message.is_32_bit) {
    execute_on<std::uint32_t>(message, reply);
  } else {
    execute_on<std::uint64_t>(message, reply);
  }
  return reply;
}

}  // namespace fabric
