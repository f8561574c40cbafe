// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric_report: gathers what the processes of a job have to tell when it ends, and has one of them write it.
#pragma once

#include <memory>
#include <string>

#include "btl_fabric/mca/chosen_queues.h"
#include "btl_fabric/mca/job_report.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/path_notes.h"

namespace fabric {

/// Each process that runs the component leaves a note when it starts, and what it has to tell when it ends. The report is written by
/// the lowest rank that has left the first: rank 0, unless that does not run the component. It waits for the others for two
/// seconds, and says who has not answered. Nobody else waits, and nothing of this is an error of the job.
class JobReporter {
 public:
  /// Null if nobody has asked for a report. When the ports are there, before MPI_Init ends.
  [[nodiscard]] static std::unique_ptr<JobReporter> begin(std::span<const std::unique_ptr<Module>> modules,
                                                          const ChosenQueues& queues,
                                                          const mca_base_component_t* component);
  /// Where connections that come about are noted; null if nobody has asked for a report.
  [[nodiscard]] static PathNotes* paths() noexcept { return current_ != nullptr ? &current_->paths_ : nullptr; }
  /// When the process has said its goodbyes: its counters do not change any more.
  void finish() noexcept;

  ~JobReporter();
  JobReporter(const JobReporter&) = delete;
  JobReporter& operator=(const JobReporter&) = delete;

 private:
  JobReporter() = default;
  [[nodiscard]] std::string here(std::uint32_t rank) const;
  [[nodiscard]] std::string told(std::uint32_t rank) const;
  void take_numbers();
  [[nodiscard]] bool is_mine_to_write() const;
  [[nodiscard]] JobReport gather() const;
  void collect(JobReport& job) const;
  void write(const JobReport& job) const;

  inline static JobReporter* current_ = nullptr;  ///< of the component, while there is one

  std::string wanted_;  ///< the parameter: Open MPI may have taken it back when the process ends
  ProcessReport own_;
  PathNotes paths_;
  unsigned round_ = 0;      ///< a process may begin and end MPI several times, by sessions
  bool is_open_ = false;    ///< job_notes
  bool has_notes_ = false;  ///< and they are taken
};

}  // namespace fabric
