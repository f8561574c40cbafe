// SPDX-License-Identifier: BSD-3-Clause
//
// Tries proposals, one on top of the other: what makes the program faster stays. What works alone, but not with what was kept before it, is
// compared on top of as many of those as it works with.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contrib/fabric_tune/gain.h"
#include "contrib/fabric_tune/program.h"
#include "contrib/fabric_tune/proposals.h"

namespace fabric::tune {

struct TunerOptions {
  std::size_t pairs = kFewestPairs;  ///< runs with a proposal, and as many without it
  double limit = 3;                  ///< a run is ended after so many times the first one's time,
  double grace = 30;                 ///< and so many seconds
  std::size_t most_proposals = 8;
  bool higher_is_better = false;
  std::set<std::string> kept;        ///< parameters that are not to be changed, beside those that the user has set
  std::optional<Recorded> recorded;  ///< what proposals follow from; nothing: the first run
};

struct WaitChange {
  std::string counter;
  std::uint64_t before = 0;
  std::uint64_t after = 0;
};

/// A proposal, and what has become of it.
struct Trial {
  Proposal proposal;
  std::string not_tried;  ///< why it was not run at all
  std::string dropped;    ///< why it was not compared
  std::string clash;      ///< what is wrong with it on top of all that was kept before; with `tried_with` it works
  Settings tried_with;    ///< what it was compared on top of, after a clash
  std::string given_up;   ///< why it was kept at first, and is no more
  std::vector<WaitChange> waits;
  std::vector<Pair> pairs;
  std::optional<Gain> gain;
  bool is_kept = false;
};

struct Tuning {
  std::string failure;  ///< why there is no result: of the program as it is
  bool is_interrupted = false;
  Run first;  ///< as the program is
  std::vector<Trial> trials;
  Settings settings;  ///< that all together were better than the program as it is; nothing: no gain worth keeping
  std::vector<Pair> pairs;
  std::optional<Gain> together;  ///< of the settings that were kept, by new runs
  std::string
      together_failed;  ///< what was wrong with all that were kept; `together` is of the best part of them that works
};

/// Hears what is being done.
using Progress = std::function<void(const std::string&)>;

/// True for a setting that nothing of ours beats, or that whoever runs the program has made for this run: by mpirun's command line, the
/// environment or a file that overrides. A file of parameters is no such thing: that is what tuning is to improve.
[[nodiscard]] bool is_users_own(const Setting& setting) noexcept;

[[nodiscard]] Tuning tune(Runner& program, const TunerOptions& options, const Progress& progress);

/// "btl_fabric_eager_limit 16384, btl_fabric_rdma_depth 256"
[[nodiscard]] std::string as_text(const Settings& settings);

}  // namespace fabric::tune
