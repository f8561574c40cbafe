// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a job fits a device, and with which receive queues it would.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "contrib/fabric_info/report.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "cpc/queue_pairs/queue_fit.h"

namespace fabric::info {

/// What a host's device has for a job.
struct HostRoom {
  std::optional<std::uint64_t> queue_pairs;  ///< for all processes; nothing: there is no device to ask
  bool has_xrc = false;
  bool has_shared_queues = true;  ///< they are run as such: not on iWARP
  DeviceCosts costs;
  std::uint32_t max_inline = 0;
  std::optional<cpc::DeviceRoom> queues;  ///< what a queue may be like; nothing: it is not known
};

/// What the queues would be run with on the device, or why it cannot be used. For a room whose `queues` are known.
[[nodiscard]] Result<cpc::QueueFit> run_with(const Question& question, const HostRoom& room);

/// What a job takes when every process has talked to every other one, and had bursts from all.
struct JobNeeds {
  std::uint64_t queue_pairs = 0;        ///< of a host's device
  std::uint64_t bytes_per_process = 0;  ///< as cpc/queue_pairs/queue_memory.h reckons, in all contexts
  cpc::QueueDemand memory;              ///< of what that is the sum, in each context
};
[[nodiscard]] JobNeeds job_needs(const Question& question, const HostRoom& room);

struct Verdict {
  std::vector<std::string> shortfalls;  ///< none: the job fits
  bool is_cached =
      false;  ///< it runs all the same: queue pairs alone are too few, and idle connections make room for others
  std::string instead;  ///< a list of receive queues that fits; empty if none of the usual ones does
};
[[nodiscard]] Verdict judge(const Question& question, const HostRoom& room);

/// {"fits", "queue_pairs_per_host", "bytes_per_process", "per_connection", "per_host", "shared", "shortfalls", "is_cached", "instead"}.
/// Memory is by part, as cpc::MemoryParts names them, and "sum".
[[nodiscard]] nlohmann::ordered_json as_json(const Question& question, const HostRoom& room);

/// All verdicts of a report are that the job fits. A device that cannot be opened has none, and nothing fits it.
[[nodiscard]] bool fits(const nlohmann::ordered_json& report);

}  // namespace fabric::info
