// SPDX-License-Identifier: BSD-3-Clause
#include "transport/remote_memory.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/copy_service.h"
#include "transport/gather.h"

namespace softhca {
namespace {

// One copy of the kernel's stores its bytes in no particular order when it is longer than this (measured: up to 256 bytes
// none was ever seen before another).
constexpr uint64_t kInOrder = 64;

using KernelCopy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Whether one byte can be read there; without harm to anybody.
bool readable(pid_t pid, const iovec& where) {
  char byte = 0;
  const iovec local{&byte, 1};
  const iovec remote{where.iov_base, 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1;
}

enum class Kernel { Done, LocalFault, RemoteFault, Gone, Forbidden };

// The kernel knows the other process by its number only. So before every call, and not just before the first, it is looked
// whether that number is still that process's.
Kernel kernel_copy(Fabric& fabric, unsigned slot, uint32_t incarnation, KernelCopy call, std::span<const iovec> local,
                   std::span<const iovec> remote) {
  IovecCursor from(local);
  IovecCursor to(remote);
  iovec l[kMaxPieces];
  iovec r[kMaxPieces];
  for (;;) {
    const unsigned locals = from.rest(l);
    const unsigned remotes = to.rest(r);
    if (locals == 0 || remotes == 0) return Kernel::Done;
    const pid_t pid = fabric.peer(slot)->header.pid.load(std::memory_order_acquire);
    if (!fabric.known_alive(slot, incarnation)) return Kernel::Gone;
    const ssize_t n = call(pid, l, locals, r, remotes, 0);
    if (n > 0) {
      from.advance(static_cast<uint64_t>(n));
      to.advance(static_cast<uint64_t>(n));
      continue;
    }
    if (n < 0 && errno == ESRCH) return Kernel::Gone;
    if (n < 0 && (errno == EPERM || errno == ENOSYS)) return Kernel::Forbidden;
    if (n < 0 && errno == EINTR) continue;
    // The errno does not say whose address is bad. When reading, the other's must be readable; when writing, ours.
    const bool reading = call == process_vm_readv;
    const bool ours = reading ? readable(pid, r[0]) : !readable(getpid(), l[0]);
    return ours ? Kernel::LocalFault : Kernel::RemoteFault;
  }
}

// Between two places in this process.
void copy_here(std::span<const iovec> from, std::span<const iovec> to) {
  IovecCursor source(from);
  IovecCursor sink(to);
  while (const uint64_t n = std::min(source.piece(), sink.piece())) {
    std::memmove(sink.here(), source.here(), n);
    source.advance(n);
    sink.advance(n);
  }
}

// A list cut before its last byte; `last_first` puts that byte to the front.
struct Cut {
  iovec pieces[kMaxPieces];
  unsigned count;

  Cut(std::span<const iovec> whole, uint64_t length, bool last_first) {
    const IovecCursor start(whole);
    IovecCursor last = start;
    last.advance(length - 1);
    count = last_first ? start.rest(pieces, length - 1, last.rest(pieces))
                       : last.rest(pieces, 1, start.rest(pieces, length - 1));
  }
  operator std::span<const iovec>() const { return {pieces, count}; }
};

Copy copy(Fabric& fabric, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
          std::span<const iovec> remote, bool writes) {
  if (slot == fabric.slot()) {
    writes ? copy_here(local, remote) : copy_here(remote, local);
    return Copy::Done;
  }
  Slot* peer = fabric.peer(slot);
  if (peer == nullptr) return Copy::Gone;
  if (kernel_may_copy(fabric, *peer)) {
    switch (kernel_copy(fabric, slot, incarnation, writes ? process_vm_writev : process_vm_readv, local, remote)) {
      case Kernel::Done:
        return Copy::Done;
      case Kernel::LocalFault:
        return Copy::LocalFault;
      case Kernel::RemoteFault:
        return Copy::RemoteFault;
      case Kernel::Gone:
        return Copy::Gone;
      case Kernel::Forbidden:
        peer->header.can_copy.store(kMayNotCopy, std::memory_order_relaxed);
    }
  }
  return copy_by_target(fabric, *peer, slot, incarnation, local, remote, writes);
}

}  // namespace

Copy write_to(Fabric& fabric, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
              std::span<const iovec> remote, Order order) {
  const uint64_t length = order == Order::LastByteLast ? total(remote) : 0;
  if (length > 1 && fabric.config().chaos_order)
    return copy(fabric, slot, incarnation, Cut(local, length, true), Cut(remote, length, true), true);
  // A target that copies itself keeps the order without this.
  if (length > kInOrder && (slot == fabric.slot() || kernel_may_copy(fabric, *fabric.peer(slot))))
    return copy(fabric, slot, incarnation, local, Cut(remote, length, false), true);
  return copy(fabric, slot, incarnation, local, remote, true);
}

Copy read_from(Fabric& fabric, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
               std::span<const iovec> remote) {
  return copy(fabric, slot, incarnation, local, remote, false);
}

}  // namespace softhca
