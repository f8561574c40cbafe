// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Copies between this process's memory and another's. The kernel does it (process_vm_readv(2)), or, where that is forbidden
// (seccomp, Yama, PR_SET_DUMPABLE) or Config::cma is false, the target does it itself: the initiator puts the bytes into a
// bounce buffer in its own slot and a CopyRequest into the target's, and waits. The target's engine, or any thread of it that
// polls or waits for a copy, then reads (pread(2)) from the shared file into its memory, or writes to it: a bad address is
// EFAULT, not a signal. Since who waits serves others meanwhile, waits in a circle end.
#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "fabric/fabric.h"

namespace softhca {

enum class Copy {
  Done,
  LocalFault,   // this process's address is bad
  RemoteFault,  // the other's is
  Gone,         // the other process is dead
  NoRoom,       // this process lacks memory for a copy by the target, and will
};

enum class Order {
  LastByteLast,  // of RDMA WRITEs the very last byte is stored after all others: programs poll for it
  Any,           // who receives looks only when a completion says that all is there
};

// Both lists have the same total length.
[[nodiscard]] Copy write_to(Fabric& fabric, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
                            std::span<const iovec> remote, Order order);
[[nodiscard]] Copy read_from(Fabric& fabric, unsigned slot, uint32_t incarnation, std::span<const iovec> local,
                             std::span<const iovec> remote);

// Executes the CopyRequests that others have put into this process's slot.
void serve_copies(Fabric& fabric);

// Tells other processes whether they may copy from and to this one (SlotHeader::can_copy); at join.
void allow_copies(Fabric& fabric);

}  // namespace softhca
