// SPDX-License-Identifier: BSD-3-Clause
//
// The job that this process is one of, by PMIx alone: whoever has started it, mpirun or srun, has a way between the hosts that needs
// neither MPI nor the fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace fabric::doctor {

class Job {
 public:
  /// Null if this process is alone. The error: it is one of a job, but cannot join it.
  [[nodiscard]] static Result<std::unique_ptr<Job>> join();
  /// Leaves it.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// What every process has to tell under `key`, by rank; waits for all. Keys are used once. What does not come is empty.
  [[nodiscard]] std::vector<std::string> tell_all(const std::string& key, const std::string& mine);
  /// Waits until `partner` calls it too; unless pairs_can_meet(), until all call meet_all() or this.
  void meet(std::uint32_t partner);
  void meet_all();
  /// False where two processes cannot wait for each other without the others: Slurm's PMIx (22.05) has a fence of some of a job's
  /// processes end at once, on each host by itself, or, with data, never.
  [[nodiscard]] bool pairs_can_meet() const noexcept { return !name_.starts_with("slurm."); }

 private:
  Job(std::uint32_t rank, std::uint32_t size, std::string name) noexcept
      : rank_(rank), size_(size), name_(std::move(name)) {}
  std::uint32_t rank_;
  std::uint32_t size_;
  std::string name_;  ///< PMIx's namespace
};

}  // namespace fabric::doctor
