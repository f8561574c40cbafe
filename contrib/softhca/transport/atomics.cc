// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on 8 bytes, in the byte order of the host. They are atomic among each other (IBV_ATOMIC_HCA): all on one
// process's memory take turns.
#include "transport/message.h"
#include "transport/remote_memory.h"

namespace softhca {
namespace {

uint64_t result_of(const SendEntry& request, uint64_t before) {
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return before + request.compare_add;
  return before == request.compare_add ? request.swap : before;
}

}  // namespace

Copy execute_atomic(Fabric& fabric, const Owner& owner, uint64_t addr, const SendEntry& request, uint64_t* before) {
  RobustGuard guard(owner.slot->header.atomics, fabric.stamp());
  if (owner.number == fabric.slot()) {
    auto* word = reinterpret_cast<uint64_t*>(addr);
    *before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(word, before, result_of(request, *before), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    return Copy::Done;
  }
  const iovec remote{reinterpret_cast<void*>(addr), sizeof *before};
  const iovec old{before, sizeof *before};
  if (const Copy read = read_from(fabric, owner.number, owner.incarnation, {&old, 1}, {&remote, 1}); read != Copy::Done)
    return read;
  uint64_t after = result_of(request, *before);
  const iovec changed{&after, sizeof after};
  if (after == *before) return Copy::Done;
  return write_to(fabric, owner.number, owner.incarnation, {&changed, 1}, {&remote, 1}, Order::Any);
}

Copy store_word(Fabric& fabric, const Owner& owner, uint64_t addr, uint64_t word) {
  RobustGuard guard(owner.slot->header.atomics, fabric.stamp());
  if (owner.number == fabric.slot()) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(addr), word, __ATOMIC_SEQ_CST);
    return Copy::Done;
  }
  const iovec local{&word, sizeof word};
  const iovec remote{reinterpret_cast<void*>(addr), sizeof word};
  return write_to(fabric, owner.number, owner.incarnation, {&local, 1}, {&remote, 1}, Order::Any);
}

}  // namespace softhca
