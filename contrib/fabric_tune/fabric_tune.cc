// SPDX-License-Identifier: BSD-3-Clause
//
// Finds parameters of btl_fabric by which a program is faster, and proves it by running the program.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "contrib/fabric_tune/program.h"
#include "contrib/fabric_tune/text.h"
#include "contrib/fabric_tune/tuner.h"
#include "contrib/options/finite_range.h"

namespace {

using namespace fabric;
using namespace fabric::tune;

constexpr int kGain = 0;
constexpr int kNoGain = 1;
constexpr int kFailed = 2;
constexpr int kInterrupted = 130;  // as a shell tells of SIGINT

int complain(const std::string& text) {
  std::cerr << "fabric_tune: " << text << '\n';
  return kFailed;
}

struct Wishes {
  TunerOptions tuner;
  Wording wording;
  std::vector<std::string> command;
  std::string metric;
  std::string from;
  std::string file;
  std::string folder = ".";
  bool json = false;
  bool verbose = false;
};

bool print(const std::string& text) {
  std::cout << text << std::flush;
  return std::cout.good();
}

std::string as_text(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

/// The exit status.
int write_settings(const Wishes& wishes, const Settings& settings, const std::vector<std::string>& remarks) {
  if (settings.empty() || wishes.file.empty()) {
    return settings.empty() ? kNoGain : kGain;
  }
  const Status written = write_params_file(wishes.file, params_file(settings, remarks));
  if (written && !wishes.json) {
    (void)print("written to " + wishes.file + '\n');
  }
  return written ? kGain : complain(written.error().text);
}

/// Without running anything.
int tell_proposals(const Wishes& wishes, const Recorded& recorded) {
  const std::vector<Proposal> proposals = propose(recorded);
  if (!print(wishes.json ? as_text(as_json(proposals)) : baseline_text(recorded) + tune::as_text(proposals))) {
    return complain("standard output cannot be written");
  }
  Settings settings;
  std::vector<std::string> remarks{"From " + wishes.from + "; none of it has been tried"};
  for (const Proposal& one : proposals) {
    const auto is_new = [&settings](const auto& other) { return !settings.contains(other.first); };
    if (std::all_of(one.settings.begin(), one.settings.end(), is_new)) {
      settings.insert(one.settings.begin(), one.settings.end());
      remarks.push_back(tune::as_text(one.settings) + ": " + one.why);
    }
  }
  return write_settings(wishes, settings, remarks);
}

/// The reason why a program leaves no report, as far as it can be told from what it is run by.
std::string why_no_report(const std::vector<std::string>& command) {
  const auto sets_it = [](const std::string& one) { return one.find("btl_fabric_report") != std::string::npos; };
  if (std::any_of(command.begin(), command.end(), sets_it)) {
    return "take btl_fabric_report off its command line: fabric_tune sets it";
  }
  return "either it does not use btl_fabric (fabric_doctor says why), or does not come to MPI_Finalize, or its rank 0 cannot see "
         "the folder for reports (--dir)";
}

int tell_failure(const Wishes& wishes, const Tuning& tuning) {
  if (!tuning.first.said.empty() && !wishes.verbose) {
    std::cerr << tuning.first.said << (tuning.first.said.ends_with('\n') ? "" : "\n");
  }
  return complain(tuning.failure +
                  (tuning.first.problem.empty() && !tuning.first.report ? ": " + why_no_report(wishes.command) : ""));
}

int tune_program(const Wishes& wishes) {
  Metric metric;
  metric.higher_is_better = wishes.tuner.higher_is_better;
  if (!wishes.metric.empty()) {
    metric.pattern.emplace(wishes.metric);
  }
  auto program = Program::make(wishes.command, std::move(metric), wishes.folder, wishes.verbose);
  if (!program) {
    return complain(program.error().text);
  }
  const Tuning tuning = tune::tune(**program, wishes.tuner,
                                   [](const std::string& what) { std::cerr << "fabric_tune: " << what << '\n'; });
  program->reset();  // its folder, before anything else can go wrong
  if (!print(wishes.json ? as_text(as_json(tuning, wishes.wording.command)) : tune::as_text(tuning, wishes.wording))) {
    return complain("standard output cannot be written");
  }
  if (tuning.is_interrupted) {
    return kInterrupted;
  }
  if (!tuning.failure.empty()) {
    return tell_failure(wishes, tuning);
  }
  std::vector<std::string> remarks{"For " + wishes.wording.command};
  if (tuning.together) {
    remarks.push_back(tune::as_text(*tuning.together, wishes.wording.gain));
  }
  for (const Trial& trial : tuning.trials) {
    if (trial.is_kept) {
      remarks.push_back(tune::as_text(trial.proposal.settings) + ": " + trial.proposal.why);
    }
  }
  for (const auto& [name, value] : tuning.settings) {
    if (const Setting* const set = tuning.first.report->setting(name); set != nullptr) {
      remarks.push_back(name + " takes the place of " + set->value + " in " + set->file);
    }
  }
  return write_settings(wishes, tuning.settings, remarks);
}

/// What would not be seen in the report, since it is no parameter of btl_fabric.
void keep_preconnect(Wishes& wishes) {
  const auto names_it = [](const std::string& one) { return one.find(kPreconnect) != std::string::npos; };
  if (std::getenv((std::string("OMPI_MCA_") + kPreconnect).c_str()) != nullptr ||
      std::any_of(wishes.command.begin(), wishes.command.end(), names_it)) {
    wishes.tuner.kept.insert(kPreconnect);
  }
}

/// Ours come first, up to -- or to the first word that is none.
int run(int argc, char** argv) {
  Wishes wishes;
  std::vector<std::string> kept;
  std::string better = "lower";
  CLI::App app(
      "Finds parameters of btl_fabric by which a program is faster: proposes what follows from its messages and from what it waits "
      "for, and runs it with and without.",
      "fabric_tune");
  app.set_version_flag("--version", "fabric_tune " FABRIC_VERSION);
  app.footer(
      "The program follows, behind --: fabric_tune -- mpirun -np 8 ./app\n"
      "Exit status: 0 something is better; 1 nothing is; 2 bad usage, or the program fails.\n");
  app.prefix_command();
  app.add_option("-n,--runs", wishes.tuner.pairs, "runs with each proposal, and as many without it")
      ->check(CLI::Range(static_cast<int>(kFewestPairs), 50))
      ->capture_default_str();
  app.add_option("-p,--proposals", wishes.tuner.most_proposals, "most proposals that are tried")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "-m,--metric", wishes.metric,
         "compare a number that the program prints, the last that this pattern (its group) matches; else the time of a run")
      ->type_name("REGEX");
  app.add_option("-b,--better", better, "whether a lower or a higher number is better")
      ->check(CLI::IsMember({"lower", "higher"}))
      ->capture_default_str();
  app.add_option("-l,--limit", wishes.tuner.limit, "a run is ended after so many times the time of the first one,")
      ->check(finite_range(1.0, 1000.0))
      ->capture_default_str();
  app.add_option("-g,--grace", wishes.tuner.grace, "and so many seconds")
      ->check(finite_range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("-k,--keep", kept, "a parameter that is not to be changed; may be given several times")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option(
         "-f,--from", wishes.from,
         "propose what follows from this report, of btl_fabric_report=FILE.json; without a program nothing is run")
      ->type_name("FILE");
  app.add_option("-d,--dir", wishes.folder,
                 "where runs leave their reports: a folder that all hosts of the program see")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("-o,--output", wishes.file, "write what is better there, for openmpi-mca-params.conf")
      ->type_name("FILE");
  app.add_flag("-j,--json", wishes.json, "JSON instead of text");
  app.add_flag("-v,--verbose", wishes.verbose, "show what the program prints, on standard error");

  std::vector<std::string> words(argv + 1, argv + argc);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> ours(words.begin(), dashes);
  std::reverse(ours.begin(), ours.end());  // as CLI11 wants them
  try {
    app.parse(ours);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFailed;
  }
  wishes.command = app.remaining();
  if (!wishes.command.empty() && wishes.command.front().starts_with('-')) {
    return complain(wishes.command.front() + ": there is no such option; fabric_tune --help has all");
  }
  if (dashes != words.end()) {
    // Those of the program's own come again.
    wishes.command.insert(wishes.command.end(), wishes.command.empty() ? dashes + 1 : dashes, words.end());
  }
  for (const std::string& one : wishes.command) {
    wishes.wording.command += (wishes.wording.command.empty() ? "" : " ") + one;
  }
  std::replace(wishes.wording.command.begin(), wishes.wording.command.end(), '\n', ' ');
  wishes.tuner.kept.insert(kept.begin(), kept.end());
  wishes.tuner.higher_is_better = better == "higher";
  if (!wishes.metric.empty()) {
    wishes.wording.gain = {"better", "worse"};
    wishes.wording.is_time = false;
  } else if (wishes.tuner.higher_is_better) {
    return complain("--better higher is of a --metric: less time is better");
  }
  if (!wishes.from.empty()) {
    auto recorded = read_recorded(wishes.from);
    if (!recorded) {
      return complain(recorded.error().text);
    }
    wishes.tuner.recorded = std::move(*recorded);
  }
  if (wishes.command.empty()) {
    return wishes.tuner.recorded ? tell_proposals(wishes, *wishes.tuner.recorded)
                                 : complain("give a program, as in fabric_tune -- mpirun -np 8 ./app, or --from");
  }
  keep_preconnect(wishes);
  return tune_program(wishes);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::regex_error&) {
    return complain("--metric is no regular expression");
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}
