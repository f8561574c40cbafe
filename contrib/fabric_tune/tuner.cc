// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/tuner.h"

#include <algorithm>
#include <cmath>

namespace fabric::tune {
namespace {

/// Steps that a proposal is taken further while the program still waits.
constexpr int kMostSteps = 4;

Settings joined(Settings some, const Settings& others) {
  for (const auto& [name, value] : others) {
    some[name] = value;
  }
  return some;
}

Settings joined(const std::vector<Settings>& all) {
  Settings one;
  for (const Settings& settings : all) {
    one = joined(std::move(one), settings);
  }
  return one;
}

/// All parts of `all` with `size` members each, those first that have the first members.
std::vector<std::vector<Settings>> parts_of(const std::vector<Settings>& all, std::size_t size) {
  std::vector<bool> is_in(all.size());
  std::fill_n(is_in.begin(), size, true);
  std::vector<std::vector<Settings>> parts;
  do {
    std::vector<Settings> part;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_in[i]) {
        part.push_back(all[i]);
      }
    }
    parts.push_back(std::move(part));
  } while (std::prev_permutation(is_in.begin(), is_in.end()));
  return parts;
}

/// What is not as it should be in a run with these settings; nothing if all is.
std::string not_in_force(const Run& run, const Settings& settings, const Recorded& first) {
  if (!run.report) {
    return "btl_fabric is not used with it";
  }
  const Recorded& now = *run.report;
  if (now.processes != first.processes || now.ports < first.ports) {
    return "not all processes or ports are used with it";
  }
  for (const auto& [name, value] : settings) {
    const Setting* const set = now.setting(name);
    if (name.starts_with("btl_fabric_") && (set == nullptr || set->value != value)) {
      return name + " is " + (set == nullptr ? "not " + value : set->value) + " in the program all the same";
    }
    if (name == kInlineSize && now.limit(name) <= first.limit(name)) {
      return "the device copies no more than " + std::to_string(first.limit(name)) + " bytes";
    }
  }
  return "";
}

class Tuner {
 public:
  Tuner(Runner& program, const TunerOptions& options, const Progress& progress)
      : program_(program), options_(options), progress_(progress) {}

  Tuning tune() {
    look_first();
    if (can_go_on()) {
      try_all();
    }
    if (can_go_on() && !kept_.empty()) {
      check_together();
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool can_go_on() const noexcept { return result_.failure.empty() && !result_.is_interrupted; }

  Run run(const Settings& settings) {
    Run one = program_.run(settings, limit_);
    result_.is_interrupted = result_.is_interrupted || one.is_interrupted;
    return one;
  }

  void look_first() {
    progress_("the program as it is");
    Run& first = result_.first = run({});
    if (result_.is_interrupted) {
      return;
    }
    if (!first.problem.empty()) {
      result_.failure = "the program as it is: " + first.problem;
    } else if (!first.report) {
      result_.failure = "the program has left no report of btl_fabric";
    } else {
      limit_ = std::chrono::duration<double>(options_.limit * first.seconds + options_.grace);
      for (const Setting& one : first.report->settings) {
        if (is_users_own(one)) {
          own_[one.name] = one.source == "override" ? "by " + one.file : "by the environment or mpirun";
        }
      }
    }
  }

  void try_all() {
    const std::vector<Proposal> proposals = propose(options_.recorded ? *options_.recorded : *result_.first.report);
    std::size_t tried = 0;
    for (const Proposal& proposal : proposals) {
      if (!can_go_on()) {
        return;
      }
      Trial trial;
      trial.proposal = proposal;
      trial.not_tried = objection(proposal);
      if (trial.not_tried.empty() && tried++ >= options_.most_proposals) {
        trial.not_tried = "it is one too many for --proposals";
      }
      if (trial.not_tried.empty()) {
        attempt(trial);
      }
      result_.trials.push_back(std::move(trial));
    }
  }

  /// What the user has decided himself, if that is in the way.
  [[nodiscard]] std::string objection(const Proposal& proposal) const {
    for (const auto& [name, value] : proposal.settings) {
      if (const auto own = own_.find(name); own != own_.end()) {
        return name + " is set " + own->second + ", and stays";
      }
      if (options_.kept.contains(name)) {
        return name + " is to stay";
      }
    }
    return "";
  }

  /// Once, as far as the program still waits for what the proposal is about; then against the best so far.
  void attempt(Trial& trial) {
    progress_(as_text(trial.proposal.settings));
    std::vector<Settings> with = kept_;  // what it is tried on top of
    std::optional<Run> with_it = probe(joined(with), trial.proposal, trial.dropped);
    if (!with_it && !with.empty() && can_go_on()) {
      with_it = make_room(trial, with);
    }
    for (int step = 1; with_it && can_go_on() && step < kMostSteps; ++step) {
      Proposal next = further(trial.proposal, *with_it->report);
      std::string why_not;
      if (next.settings.empty() || !objection(next).empty()) {
        break;
      }
      progress_("  further: " + as_text(next.settings));
      std::optional<Run> more = probe(joined(with), next, why_not);
      if (!more) {
        break;  // as far as it went before
      }
      trial.proposal = std::move(next);
      with_it = std::move(more);
    }
    if (!with_it || !can_go_on()) {
      return;
    }
    for (const std::string& counter : trial.proposal.counters) {
      trial.waits.push_back(
          {counter, result_.first.report->total(counter), with_it->report ? with_it->report->total(counter) : 0});
    }
    with.push_back(trial.proposal.settings);
    trial.dropped = compare(joined(kept_), joined(with), trial.pairs);
    trial.gain = gain_of(trial.pairs, options_.higher_is_better);
    if (trial.dropped.empty() && trial.gain && trial.gain->is_sure()) {
      trial.is_kept = true;
      keep(with, "it does not work with " + as_text(trial.proposal.settings) + ", which is better");
    }
  }

  /// For a proposal that does not work with all that were kept: leaves in `with` as many of them as it works with. Nothing, and `with` as
  /// it was, if it does not work alone.
  std::optional<Run> make_room(Trial& trial, std::vector<Settings>& with) {
    std::string why_not;
    std::optional<Run> alone = probe({}, trial.proposal, why_not);
    if (!alone) {
      return std::nullopt;
    }
    trial.clash = trial.dropped;
    trial.dropped.clear();
    for (std::size_t size = with.size() - 1; size > 0; --size) {
      for (std::vector<Settings>& part : parts_of(kept_, size)) {
        if (!can_go_on()) {
          return std::nullopt;
        }
        if (std::optional<Run> run = probe(joined(part), trial.proposal, why_not); run) {
          with = std::move(part);
          trial.tried_with = joined(with);
          return run;
        }
      }
    }
    with.clear();
    return alone;
  }

  /// These are all that is kept now; others that were have `why` to tell.
  void keep(const std::vector<Settings>& settings, const std::string& why) {
    for (Trial& trial : result_.trials) {
      if (trial.is_kept && std::find(settings.begin(), settings.end(), trial.proposal.settings) == settings.end()) {
        trial.is_kept = false;
        trial.given_up = why;
      }
    }
    kept_ = settings;
  }

  std::optional<Run> probe(const Settings& with, const Proposal& proposal, std::string& problem) {
    const Settings all = joined(with, proposal.settings);
    Run one = run(all);
    problem = !one.problem.empty() ? one.problem : not_in_force(one, all, *result_.first.report);
    return problem.empty() ? std::optional(std::move(one)) : std::nullopt;
  }

  /// Runs with and without, next to each other, in turn first. Returns what is wrong with those with it.
  std::string compare(const Settings& without, const Settings& with, std::vector<Pair>& pairs) {
    for (std::size_t i = 0; i < options_.pairs && can_go_on(); ++i) {
      Pair pair;
      for (const bool is_with : {i % 2 == 1, i % 2 == 0}) {
        Run one = run(is_with ? with : without);
        if (!is_with && !one.problem.empty() && can_go_on()) {
          one = run(without);  // the machine may have stood still
        }
        if (result_.is_interrupted) {
          return "";
        }
        if (!one.problem.empty()) {
          if (is_with) {
            return one.problem;
          }
          result_.failure = "the program as it is ends well now and then only: " + one.problem;
          return "";
        }
        (is_with ? pair.after : pair.before) = one.figure;
      }
      pairs.push_back(pair);
    }
    return "";
  }

  /// Each was kept because it seemed to be better, which some are by chance: so all of them are measured anew. If they fail, the best of
  /// their largest parts that do not.
  void check_together() {
    progress_("together: " + as_text(joined(kept_)));
    result_.together_failed = compare({}, joined(kept_), result_.pairs);
    result_.together = gain_of(result_.pairs, options_.higher_is_better);
    if (!result_.together_failed.empty()) {
      result_.pairs.clear();
      result_.together.reset();
      const std::vector<Settings> all = kept_;
      for (std::size_t size = all.size() - 1; size > 0 && !result_.together && can_go_on(); --size) {
        best_of(parts_of(all, size));
      }
    }
    if (can_go_on() && result_.together && result_.together->is_sure()) {
      result_.settings = joined(kept_);
    }
  }

  /// Measures each, and keeps that with the largest gain, of those that work.
  void best_of(const std::vector<std::vector<Settings>>& parts) {
    const std::string why = "all together failed: " + result_.together_failed;
    std::vector<Settings> best;
    for (const std::vector<Settings>& part : parts) {
      progress_("a part of them: " + as_text(joined(part)));
      std::vector<Pair> pairs;
      const std::string problem = compare({}, joined(part), pairs);
      const std::optional<Gain> gain = gain_of(pairs, options_.higher_is_better);
      if (!can_go_on()) {
        return;
      }
      if (problem.empty() && gain && (!result_.together || gain->middle > result_.together->middle)) {
        best = part;
        result_.together = gain;
        result_.pairs = std::move(pairs);
      }
    }
    if (result_.together) {
      keep(best, why);
    }
  }

  Runner& program_;
  const TunerOptions& options_;
  const Progress& progress_;
  Tuning result_;
  std::vector<Settings> kept_;              ///< those of the proposals that were kept so far
  std::map<std::string, std::string> own_;  ///< what the user has set, and where
  std::optional<std::chrono::duration<double>> limit_;
};

}  // namespace

bool is_users_own(const Setting& setting) noexcept {
  return setting.source != "file" && setting.name != "btl_fabric_report";
}

Tuning tune(Runner& program, const TunerOptions& options, const Progress& progress) {
  return Tuner(program, options, progress).tune();
}

std::string as_text(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    text += (text.empty() ? "" : ", ") + name + ' ' + value;
  }
  return text;
}

}  // namespace fabric::tune
