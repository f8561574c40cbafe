// SPDX-License-Identifier: BSD-3-Clause
//
// Progress while Open MPI 4.1 waits for other processes by PMIx.
#pragma once

namespace fabric {

/// From now on what Open MPI 4.1 waits for by a fence of PMIx (MPI_Comm_disconnect), or by its connect (MPI_Comm_spawn, MPI_Comm_accept,
/// MPI_Comm_connect, MPI_Comm_join), is waited for with progress. Call it when the component has started; PMIx is there by then. It
/// does nothing where PMIx has no functions that return at once, and with 5.0, which calls PMIx itself.
///
/// Why: Open MPI sleeps in those calls. A process that has all it waits for may still have something to send that others wait for:
/// an acknowledgement that ob1 owes, for which there is no connection, no queue pair or no credit yet; or the rest of a message of
/// another communicator. If those must come to the same call, all wait for ever.
void progress_while_pmix_waits() noexcept;

/// Open MPI waits as before. Call it before the component goes; once more does no harm.
void leave_pmix_waits() noexcept;

}  // namespace fabric
