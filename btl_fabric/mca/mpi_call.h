// SPDX-License-Identifier: BSD-3-Clause
//
// Which MPI function the program is in: the component is called from below it.
#pragma once

#include <string>

namespace fabric {

struct MpiCall {
  std::string function;  ///< "MPI_Recv"; empty if the stack does not tell
  std::string caller;    ///< "solver+0x12f4", for addr2line; empty if it is not known
};

/// Of the thread that asks. Walks the stack, and the first time loads what is needed for that: for questions, not for the packet
/// path.
[[nodiscard]] MpiCall mpi_call_of_this_thread();

}  // namespace fabric
