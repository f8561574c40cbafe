// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What each process of a fabric has, and has moved so far.
#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace softhca {

class FabricView;

struct Usage {
  unsigned slot;
  uint32_t incarnation;  // with `slot` it says which process it is
  pid_t pid;
  unsigned node;
  std::string program;
  std::string rank;  // of an MPI process; else empty
  std::set<unsigned> devices;
  unsigned queue_pairs = 0;
  // Requests of its own, and those that others have had executed on its queue pairs.
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  // With RDMA READs, which bring bytes to who sends the request.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// Of all processes, in the order of their slots.
std::vector<Usage> usage_of(FabricView& fabric);

}  // namespace softhca
