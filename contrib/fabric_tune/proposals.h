// SPDX-License-Identifier: BSD-3-Clause
//
// What could make a program faster, from what it has done: rules, each of which looks at the report of a job. Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "contrib/fabric_tune/recorded.h"

namespace fabric::tune {

/// Values of parameters, by their names in full.
using Settings = std::map<std::string, std::string>;

struct Proposal {
  Settings settings;
  std::string why;                    ///< one sentence
  std::vector<std::string> counters;  ///< of waits that it is to remove
};

/// The most likely first, no value twice. Nothing that could be wrong is proposed where the component has reasons to be careful
/// (eager_rdma), and nothing that concerns failures and not speed (timeouts).
[[nodiscard]] std::vector<Proposal> propose(const Recorded& recorded);

/// What goes further than `tried`, for a program that did this with it: it still waits for the same. Empty settings if nothing does.
[[nodiscard]] Proposal further(const Proposal& tried, const Recorded& with_it);

/// The list with each queue repaired that somebody waited for, as far as the memory for receives goes; `why` and `counters` say
/// what for. The same list if nobody did.
[[nodiscard]] ReceiveQueues repaired(const Recorded& recorded, Proposal& reasons);

inline constexpr const char* kReceiveQueues = "btl_fabric_receive_queues";
inline constexpr const char* kEagerLimit = "btl_fabric_eager_limit";
inline constexpr const char* kInlineSize = "btl_fabric_max_inline_data";
inline constexpr const char* kInPlaceSize = "btl_fabric_in_place_size";
inline constexpr const char* kSendBuffers = "btl_fabric_free_list_max";
inline constexpr const char* kRdmaDepth = "btl_fabric_rdma_depth";
inline constexpr const char* kPreconnect = "mpi_preconnect_mpi";

/// Most bytes of receives that a repaired queue has, of a process.
inline constexpr std::uint64_t kMostReceiveMemory = 64 * 1024 * 1024;

}  // namespace fabric::tune
