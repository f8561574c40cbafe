// SPDX-License-Identifier: BSD-3-Clause
//
// Will MPI over the fabric BTL work here, and if not, what is to be done? Alone on a host, or over those of a job.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "contrib/fabric_doctor/checks/check_list.h"
#include "contrib/fabric_doctor/job/examine_job.h"
#include "contrib/fabric_doctor/report.h"

namespace {

using namespace fabric::doctor;

constexpr int kBadUsage = 2;

std::string list_of_checks() {
  std::string text = "Checks:\n";
  for (const Check& check : kChecks) {
    std::string name(check.name);
    name.resize(12, ' ');
    text.append("  ").append(name).append(check.looks_at).append("\n");
  }
  return text + "Exit status: 0 all is well, or WARN; 1 FAIL; 2 bad usage.\n";
}

Section check_host(const JobShape& shape) {
  const Host host = look_at_host(shape);
  Section section;
  for (const Check& check : kChecks) {
    section.results.push_back({std::string(check.name), check.run(host)});
  }
  return section;
}

/// False if it cannot be written, to the file or to standard output.
bool print(const std::vector<Section>& report, const std::vector<PairResult>& pairs, bool as_json_too,
           const std::string& file) {
  if (!as_json_too) {
    std::cout << as_text(report) << std::flush;
    return std::cout.good();
  }
  nlohmann::ordered_json json = as_json(report);
  if (!pairs.empty()) {
    json["pairs"] = pairs;
  }
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file.empty() || file == "-") {
    std::cout << text << std::flush;
    return std::cout.good();
  }
  std::cout << as_text(report) << std::flush;
  std::ofstream out(file);
  out << text;
  out.close();
  return out.good() && std::cout.good();
}

int run(int argc, char** argv) {
  JobShape shape;
  std::vector<std::pair<std::string, std::string>> mca;
  std::string json_file;
  std::uint32_t rounds = 8;
  CLI::App app(
      "Will MPI over the fabric BTL work here, and if not, what is to be done? Alone: on this host. Started by mpirun or srun: on "
      "the hosts of the job, with one process on each, and between them.",
      "fabric_doctor");
  app.set_version_flag("--version", "fabric_doctor " FABRIC_VERSION);
  app.footer(list_of_checks());
  app.add_option("-o,--hosts", shape.hosts, "alone: hosts of the job that is planned")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-n,--processes", shape.processes, "processes of the job on each host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-r,--rounds", rounds, "in a job: partners that each process tries at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--mca", mca, "NAME VALUE: a parameter, as for mpirun");
  const CLI::Option* const json =
      app.add_option("-j,--json", json_file, "JSON instead of text; with a file: there, and text here")->expected(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  }
  for (const auto& [name, value] : mca) {
    setenv(("OMPI_MCA_" + name).c_str(), value.c_str(), 1);
  }
  const auto job = Job::join();
  std::vector<Section> report;
  std::vector<PairResult> pairs;
  if (job && *job) {
    JobReport found = examine_job(**job, rounds);
    if ((*job)->rank() != 0) {
      return 0;  // rank 0 speaks for all
    }
    report = std::move(found.sections);
    pairs = std::move(found.pairs);
  } else {
    report.push_back(check_host(shape));
  }
  if (!job) {
    report.front().results.push_back({"job", {fail(job.error().text, "start it by mpirun, or by srun with PMIx")}});
  }
  if (!print(report, pairs, json->count() > 0, json_file)) {
    std::fprintf(stderr, "fabric_doctor: %s cannot be written\n",
                 json_file.empty() || !std::cout ? "standard output" : json_file.c_str());
    return kBadUsage;
  }
  return worst(report) == Level::kFail ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], kAnswerOption) == 0) {
    return answer_for_open_mpi(std::atoi(argv[2]));
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fabric_doctor: %s\n", error.what());
    return 1;
  }
}
