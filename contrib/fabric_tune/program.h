// SPDX-License-Identifier: BSD-3-Clause
//
// The user's program, which is run again and again: with parameters in its environment, for a limited time, and so that nothing of
// it is left behind on this host, whatever ends it.
#pragma once

#include <chrono>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "contrib/fabric_tune/proposals.h"
#include "contrib/fabric_tune/recorded.h"

namespace fabric::tune {

/// The figure of a run that is compared.
struct Metric {
  std::optional<std::regex>
      pattern;  ///< of the program's output, the last match; nothing: the time of the whole run, seconds
  bool higher_is_better = false;
};

struct Run {
  std::string problem;          ///< why it counts for nothing; empty: it has ended well
  bool is_interrupted = false;  ///< by the user: nothing more is to be run
  double seconds = 0;
  double figure = 0;               ///< the metric's
  std::optional<Recorded> report;  ///< nothing if btl_fabric was not used
  std::string said;                ///< the end of what it has printed
};

/// How a program is run; tests have one that runs nothing.
class Runner {
 public:
  virtual ~Runner() = default;
  /// `limit`: when it is over, the program is ended.
  [[nodiscard]] virtual Run run(const Settings& settings, std::optional<std::chrono::duration<double>> limit) = 0;
};

/// Takes SIGINT, SIGTERM and SIGHUP, and the children of this process that die: one for a process. All hosts of the program see the
/// folder for reports, which goes with this object. If this process is killed it is left, and the next run in the same place removes it.
class Program final : public Runner {
 public:
  /// The error: the folder cannot be made in `parent`.
  [[nodiscard]] static Result<std::unique_ptr<Program>> make(std::vector<std::string> command, Metric metric,
                                                             const std::string& parent, bool shows_output);
  ~Program() override;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] Run run(const Settings& settings, std::optional<std::chrono::duration<double>> limit) override;

 private:
  Program() = default;
  [[nodiscard]] std::vector<std::string> environment(const Settings& settings) const;
  [[nodiscard]] std::optional<Recorded> take_report() const;

  std::vector<std::string> command_;
  Metric metric_;
  std::string folder_;
  int lock_ = -1;  ///< of the folder, while this process lives
  bool shows_output_ = false;
};

/// Removes folders for reports in `parent` that a process of this user has left there which was killed. Those of others, and those of processes
/// that live, on whatever host, stay.
void remove_folders_of_the_dead(const std::string& parent);

/// The last number that the pattern finds, its first group if it has one. Lines longer than 4096 characters are not looked at.
[[nodiscard]] std::optional<double> figure_in(const std::string& output, const std::regex& pattern);

}  // namespace fabric::tune
