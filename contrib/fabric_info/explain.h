// SPDX-License-Identifier: BSD-3-Clause
//
// How the component would carry out an operation on a device: the planner's own words.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "common/base/result.h"
#include "contrib/fabric_info/report.h"

namespace fabric::info {

/// Reads an operation as a user writes it, KIND:BYTES[:unregistered], where KIND is write, read, add or swap.
[[nodiscard]] Result<PlannedOperation> parse_operation(const std::string& text);

/// A port of a device, as far as plans depend on it.
struct PortLimits {
  ibv_pd* pd = nullptr;
  Transport link = Transport::kRoce;
  std::uint64_t max_message = 0;
  std::uint32_t max_inline = 0;
  int max_reads = 0;  ///< of the device
};

/// "read of 1048576 bytes in 1 pieces: 1 requests, ...", on the queue pair that carries such operations.
[[nodiscard]] std::string explain(const Question& question, const PlannedOperation& operation, const PortLimits& port,
                                  const DeviceCosts& costs);

}  // namespace fabric::info
