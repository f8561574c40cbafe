// SPDX-License-Identifier: BSD-3-Clause
//
// A process that has died, and that Open MPI goes on without (ULFM, from 5.0 on): what is still waited for of it.
//
// ob1 ends its requests to such a process by itself, in whoever waits for them (ompi_request_is_failed), and uses some of them for
// other messages at once, though what it has asked of a BTL still names them: all blocking sends have one request, and a receive
// that was matched goes back to its list. A callback for what a request was before ends what it is now. Others it leaves alone: then
// the callback ends them, as those of a communicator that is being made, or gives them back, as those of MPI_Isend. Read in ob1 of
// Open MPI 5.0.7.
//
// In C, as what is behind it: the headers that declare Open MPI's requests are not C++.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct opal_proc_t;
struct mca_btl_base_descriptor_t;

/// Open MPI goes on without this process, whose object there is. Never with 4.1. For all threads.
bool fabric_goes_on_without(const struct opal_proc_t* proc);

/// Whether somebody is still to hear that a message to the process has ended: it names no request, or one that is still its own.
/// `tag` is the one that it was sent with. `status` is what would be told, and becomes what is: of its sends ob1 hears success, as of
/// any that has left, since it has its own news of the process. An error makes it take the BTL from the list of those for short
/// messages, and the next one to the process then goes by a way that is not there, and crashes.
bool fabric_awaits_message(const struct opal_proc_t* gone, unsigned tag,
                           const struct mca_btl_base_descriptor_t* message, int* status);

/// The same of a read, write or atomic. Those of ob1 name requests in a way that cannot be seen from here, so it hears of none: what it
/// hands over as their context is one of its ways to the process.
bool fabric_awaits_rdma(const struct opal_proc_t* gone, const void* context);

#ifdef __cplusplus
}
#endif
