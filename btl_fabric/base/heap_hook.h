// SPDX-License-Identifier: BSD-3-Clause
//
// Tells Open MPI's memory hooks when the heap shrinks, where another library keeps that from them.
#pragma once

namespace fabric {

/// Makes sbrk() call brk(), which is what Open MPI's registration cache listens to, whatever the former did before. Call it when a
/// cache has been made, as that sets the hooks; any number of times, in any one thread at a time. Where Open MPI has set no hooks
/// (mpi_leave_pinned is 0, or it cannot) this does nothing: then the cache keeps nothing that is not in use.
///
/// Why: without it, UCX's libucm has patched sbrk() to make the system call itself, when Open MPI comes to patch brk(), mmap() and
/// others. On Debian 13 that is in every MPI process, as libfabric and libmpi bring UCX along, whether it is used or not. free() then
/// gives the end of the heap back unnoticed, malloc() gets other pages at the same addresses, and the cached registration still
/// has the old ones: wrong bytes are sent. (libfabric's own cache had the same: its pull request 12850.)
void hook_heap() noexcept;

}  // namespace fabric
