// SPDX-License-Identifier: BSD-3-Clause
//
// What btl_fabric_report says of a job, from what its processes have told: as JSON, and as text. Nothing here knows Open MPI; who
// gathers it is job_reporter.h.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "btl_fabric/base/job_tally.h"
#include "btl_fabric/base/size_classes.h"
#include "btl_fabric/mca/job_paths.h"
#include "common/base/result.h"
#include "common/ports/port_address.h"

namespace fabric {

/// A port that a process has used.
struct ReportedPort {
  std::string name;  ///< "mlx5_0:1"
  PortAddress address;
  std::uint32_t mbit = 0;  ///< per second
  bool operator==(const ReportedPort&) const = default;
};

/// One receive queue of a process, and who waited for it.
struct ReportedQueue {
  std::string spec;  ///< "P,256,192,128,..."
  QueueWaits waits;
};

/// A parameter of the component that somebody has set.
struct ReportedSetting {
  std::string name;   ///< "btl_fabric_eager_limit"
  std::string value;  ///< as it was written
  std::string
      source;  ///< "environment", where mpirun puts what its command line says; "file"; "override": a file that nothing beats
  std::string file;  ///< of the last two
  bool operator==(const ReportedSetting&) const = default;
};

/// What one process has to tell.
struct ProcessReport {
  std::uint32_t rank = 0;
  std::string host;
  std::string version;         ///< of the component
  std::string open_mpi;        ///< version
  std::string receive_queues;  ///< the list in force
  std::string why;             ///< that list
  std::vector<ReportedPort> ports;
  std::map<std::string, std::uint64_t> methods;   ///< connections that came about by each
  std::map<std::string, std::uint64_t> counters;  ///< those that are not 0
  std::vector<ReportedQueue> queues;
  std::map<std::string, std::uint64_t> limits;  ///< of protocols of the first port, by the names of parameters
  std::vector<ReportedSetting> settings;
  SizeHistogram sizes;
  std::vector<ReportedPath> paths;
  std::optional<SlowestSetUp> slowest;  ///< job 1 of the peer: another one than this
};

/// Of a job.
struct JobReport {
  std::uint32_t processes = 0;         ///< of the job
  bool is_of_one = false;              ///< the launcher passes nothing on, so this is of who writes it alone
  std::uint32_t reporter = 0;          ///< rank of who writes this
  std::vector<ProcessReport> reports;  ///< by rank
  std::vector<std::uint32_t> silent;   ///< ranks that run the component, and have not told anything in time
  std::vector<std::uint32_t> without;  ///< ranks that do not run it
};

/// What a process sends to who writes the report.
[[nodiscard]] std::string encode(const ProcessReport& report);
/// The error: what is wrong with the text.
[[nodiscard]] Result<ProcessReport> decode_process_report(std::string_view text);

/// Everything, for programs.
[[nodiscard]] nlohmann::ordered_json as_json(const JobReport& job);
/// The same for people, lines of at most 132 characters where names let it; `summary` comes from as_json().
[[nodiscard]] std::string as_text(const nlohmann::ordered_json& summary);

}  // namespace fabric
