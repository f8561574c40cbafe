// SPDX-License-Identifier: BSD-3-Clause
//
// Which counters tell that somebody has waited, or that something was done twice, and which parameter helps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/param_table.h"

namespace fabric {

/// A counter of the table, the parameter that makes it smaller, and how.
struct WaitAdvice {
  std::uint64_t Counters::*value;                 ///< null: `shared` is the counter
  std::string_view parameter;                     ///< as users write it
  std::string_view advice;                        ///< one sentence
  std::uint64_t QueueWaits::*of_queue = nullptr;  ///< the same by receive queue
  const std::atomic<std::uint64_t>* shared = nullptr;
};

inline constexpr std::array kWaitAdvice = {
    WaitAdvice{
        &Counters::waits_for_credit, "btl_fabric_receive_queues",
        "raise rd_num, the third field of that queue, and rd_init, its last: the receiver's buffers were used up",
        &QueueWaits::for_credit},
    WaitAdvice{&Counters::waits_for_slot, "btl_fabric_receive_queues",
               "raise sd_max, the fifth field of that queue (of a P queue rd_num, the third)", &QueueWaits::for_slot},
    WaitAdvice{&Counters::waits_for_buffer, "btl_fabric_free_list_max",
               "raise it, or 0 for no limit: all send buffers of the size were in use", &QueueWaits::for_buffer},
    WaitAdvice{&Counters::waits_for_connection, "mpi_preconnect_mpi",
               "1 connects all processes in MPI_Init, so that it is there that messages wait, and not in the program"},
    WaitAdvice{&Counters::connections_rested, "btl_fabric_max_queue_pairs",
               "raise it, or take fewer receive queues: connections were given up to make room for others"},
    WaitAdvice{
        &Counters::srq_limit_events, "btl_fabric_receive_queues",
        "raise rd_init, the sixth field of that queue: its shared buffers ran low, and senders may have been sent away",
        &QueueWaits::ran_low},
    WaitAdvice{&Counters::receive_queues_grown, "btl_fabric_receive_queues",
               "raise rd_init, the seventh field of that queue: it began with too few buffers", &QueueWaits::grown},
    WaitAdvice{&Counters::rdma_queued, "btl_fabric_rdma_depth",
               "raise it, if the device has room: more reads and writes were wanted at once"},
    WaitAdvice{&Counters::rdma_held, "btl_fabric_receive_queues",
               "raise rd_num or sd_max of the queue for small messages: what follows a read or write had no room"},
    WaitAdvice{nullptr, "btl_fabric_in_place_size",
               "0 copies messages instead of registering memory; so do fewer processes on a host", nullptr,
               &regions_at_limit},
    WaitAdvice{&Counters::packets_resent, "btl_fabric_timeout",
               "raise it, or btl_fabric_retry_count, if cables and switches are well: connections broke"},
};

/// The index in the table of the counter that it is about; test_job_report sees one that is not there. (With UBSan a compiler
/// compares no pointers at compile time.)
[[nodiscard]] inline std::size_t index_of(const WaitAdvice& advice) noexcept {
  std::size_t index = 0;
  while (index < kCounterTable.size() &&
         (kCounterTable[index].value != advice.value || kCounterTable[index].shared != advice.shared)) {
    ++index;
  }
  return index;
}
/// That counter.
[[nodiscard]] inline const CounterSpec& counter_of(const WaitAdvice& advice) noexcept {
  return kCounterTable[index_of(advice)];
}

/// One of ours, or one of Open MPI's own.
[[nodiscard]] constexpr bool is_parameter(std::string_view name) noexcept {
  constexpr std::string_view kPrefix = "btl_fabric_";
  if (!name.starts_with(kPrefix)) {
    return name.starts_with("mpi_");
  }
  for (const ParamSpec& spec : kParamTable) {
    if (name.substr(kPrefix.size()) == spec.name) {
      return true;
    }
  }
  return false;
}

static_assert(
    [] {
      for (const WaitAdvice& one : kWaitAdvice) {
        if (!is_parameter(one.parameter)) {
          return false;
        }
      }
      return true;
    }(),
    "each names a parameter that there is");

}  // namespace fabric
