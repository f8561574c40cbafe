// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_tune/text.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common/base/whole_file.h"

namespace fabric::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFirstLine = "# Written by fabric_tune";

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

std::string counted(std::uint64_t count, const std::string& one, const std::string& several) {
  return grouped_digits(count) + ' ' + (count == 1 ? one : several);
}

double median(std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  const std::size_t last = figures.size() - 1;
  return (figures[last / 2] + figures[(last + 1) / 2]) / 2;
}

/// "12.31 s -> 11.50 s, "
std::string medians(const std::vector<Pair>& pairs, bool is_time) {
  std::vector<double> before;
  std::vector<double> after;
  for (const Pair& pair : pairs) {
    before.push_back(pair.before);
    after.push_back(pair.after);
  }
  char text[80];
  std::snprintf(text, sizeof text, is_time ? "%.2f s -> %.2f s" : "%g -> %g", median(before), median(after));
  return text;
}

std::string verdict(const Trial& trial, const Wording& wording) {
  if (!trial.not_tried.empty()) {
    return "not tried: " + trial.not_tried;
  }
  if (!trial.dropped.empty()) {
    return "dropped: " + trial.dropped;
  }
  if (!trial.gain) {
    return "not finished";
  }
  const std::string kept = trial.is_kept ? "" : trial.given_up.empty() ? "no gain worth keeping: " : "given up: ";
  return kept + as_text(*trial.gain, wording.gain) + ", " + medians(trial.pairs, wording.is_time) +
         (trial.given_up.empty() ? "" : "; " + trial.given_up);
}

/// Nothing if it works with all that was kept before it.
std::string clash_line(const Trial& trial) {
  if (trial.clash.empty()) {
    return "";
  }
  return "   does not work with all that was kept before it (" + trial.clash +
         "), so it takes the place of it; it works " +
         (trial.tried_with.empty() ? "alone" : "with " + as_text(trial.tried_with)) + '\n';
}

/// What the settings are that all in all are better, where not all that were kept are.
std::string together_failed_lines(const Tuning& tuning) {
  if (tuning.together_failed.empty()) {
    return "";
  }
  return "all together failed: " + tuning.together_failed + '\n' +
         (tuning.settings.empty() ? "" : "the best part of them that works is " + as_text(tuning.settings) + '\n');
}

std::string proposal_lines(std::size_t number, const Proposal& proposal) {
  std::string text;
  for (const auto& [name, value] : proposal.settings) {
    text += (text.empty() ? std::to_string(number) + ". " : "   ") + name + " = " + value + '\n';
  }
  return text + "   why: " + proposal.why + '\n';
}

Json gain_json(const std::optional<Gain>& gain) {
  if (!gain) {
    return {};
  }
  return {{"percent", gain->middle * 100},
          {"low", gain->low * 100},
          {"high", gain->high * 100},
          {"runs", gain->runs},
          {"is_sure", gain->is_sure()}};
}

Json pairs_json(const std::vector<Pair>& pairs) {
  Json list = Json::array();
  for (const Pair& pair : pairs) {
    list.push_back({{"before", pair.before}, {"after", pair.after}});
  }
  return list;
}

Json trial_json(const Trial& trial) {
  Json waits = Json::array();
  for (const WaitChange& one : trial.waits) {
    waits.push_back({{"counter", one.counter}, {"before", one.before}, {"after", one.after}});
  }
  return {{"settings", trial.proposal.settings},
          {"why", trial.proposal.why},
          {"not_tried", trial.not_tried},
          {"dropped", trial.dropped},
          {"clash", trial.clash},
          {"tried_with", trial.tried_with},
          {"waits", std::move(waits)},
          {"figures", pairs_json(trial.pairs)},
          {"gain", gain_json(trial.gain)},
          {"kept", trial.is_kept},
          {"given_up", trial.given_up}};
}

std::string sizes_line(const std::string& kind, const std::vector<SizeCount>& sizes) {
  std::string text;
  for (const SizeCount& one : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(one.up_to) + ": " + grouped_digits(one.count);
  }
  return text.empty() ? "" : "  " + kind + " by size, up to so many bytes: " + text + '\n';
}

}  // namespace

std::string baseline_text(const Recorded& recorded) {
  std::string text =
      "  " + counted(recorded.processes, "process", "processes") + " on " + counted(recorded.hosts, "host", "hosts") +
      ", each talks to at most " + counted(recorded.most_peers, "other", "others") + ", " +
      counted(recorded.operations, "operation", "operations") + '\n' + sizes_line("messages", recorded.messages) +
      sizes_line("reads", recorded.reads) + sizes_line("writes", recorded.writes);
  for (const Setting& one : recorded.settings) {
    if (one.name == "btl_fabric_report") {
      continue;
    }
    text += "  " + one.name + ' ' + one.value +
            (is_users_own(one) ? one.source == "override" ? ": set by " + one.file + ", which beats all else: it stays"
                                                          : ": set by you, in the environment or for mpirun: it stays"
                               : ": set by " + (one.file.empty() ? "a file of parameters" : one.file) +
                                     ": a proposal may replace it") +
            '\n';
  }
  for (const Wait& wait : recorded.waits) {
    if (wait.matters) {
      text += "  " + wait.counter + ' ' + grouped_digits(wait.total) +
              (wait.queue.empty() ? "" : ", most of them on queue " + wait.queue) + '\n';
    }
  }
  return text;
}

std::string as_text(const Tuning& tuning, const Wording& wording) {
  std::string text = wording.command + ", as it is: " + seconds_text(tuning.first.seconds) + '\n' +
                     (tuning.first.report ? baseline_text(*tuning.first.report) : "");
  std::size_t number = 0;
  for (const Trial& trial : tuning.trials) {
    text += proposal_lines(++number, trial.proposal);
    for (const WaitChange& one : trial.waits) {
      if (one.before > 0 || one.after > 0) {
        text += "   " + one.counter + ' ' + grouped_digits(one.before) + " -> " + grouped_digits(one.after) + '\n';
      }
    }
    text += clash_line(trial) + "   " + verdict(trial, wording) + '\n';
  }
  if (!tuning.failure.empty()) {
    return text;
  }
  if (tuning.is_interrupted) {
    return text + "interrupted\n";
  }
  text += together_failed_lines(tuning);
  if (tuning.settings.empty()) {
    const std::string measured = tuning.together ? ": together " + as_text(*tuning.together, wording.gain) : "";
    return text + "no gain worth keeping" + measured + '\n';
  }
  return text + "together: " + as_text(*tuning.together, wording.gain) + ", " + medians(tuning.pairs, wording.is_time) +
         '\n';
}

Json as_json(const Tuning& tuning, const std::string& command) {
  Json settings = Json::array();
  Json trials = Json::array();
  if (tuning.first.report) {
    for (const Setting& one : tuning.first.report->settings) {
      settings.push_back({{"name", one.name},
                          {"value", one.value},
                          {"source", one.source},
                          {"file", one.file},
                          {"stays", is_users_own(one)}});
    }
  }
  for (const Trial& trial : tuning.trials) {
    trials.push_back(trial_json(trial));
  }
  return {{"command", command},
          {"failure", tuning.failure},
          {"interrupted", tuning.is_interrupted},
          {"seconds", tuning.first.seconds},
          {"figure", tuning.first.figure},
          {"set", std::move(settings)},
          {"proposals", std::move(trials)},
          {"together_failed", tuning.together_failed},
          {"figures", pairs_json(tuning.pairs)},
          {"gain", gain_json(tuning.together)},
          {"settings", tuning.settings}};
}

std::string as_text(const std::vector<Proposal>& proposals) {
  std::string text;
  std::size_t number = 0;
  for (const Proposal& one : proposals) {
    text += proposal_lines(++number, one);
  }
  return text.empty() ? "nothing to propose\n" : text + "none of this has been tried\n";
}

Json as_json(const std::vector<Proposal>& proposals) {
  Json list = Json::array();
  for (const Proposal& one : proposals) {
    list.push_back({{"settings", one.settings}, {"why", one.why}});
  }
  return {{"proposals", std::move(list)}};
}

std::string params_file(const Settings& settings, const std::vector<std::string>& remarks) {
  std::string text = std::string(kFirstLine) + " " FABRIC_VERSION ", for openmpi-mca-params.conf\n";
  for (const std::string& one : remarks) {
    text += "# " + one + '\n';
  }
  for (const auto& [name, value] : settings) {
    text += name + " = " + value + '\n';
  }
  return text;
}

Status write_params_file(const std::string& path, const std::string& text) {
  if (std::ifstream old(path); old) {
    std::string line;
    std::getline(old, line);
    if (!line.starts_with(kFirstLine)) {
      return failure(path + " is there, and not written by fabric_tune: name another file, and copy the lines");
    }
  }
  return write_whole_file(path, text);
}

}  // namespace fabric::tune
