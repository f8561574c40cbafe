// SPDX-License-Identifier: BSD-3-Clause
//
// Shows the RDMA devices of this host as the component sees them, and what a list of receive queues takes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <optional>

#include "btl_fabric/base/param_reader.h"
#include "common/base/whole_file.h"
#include "contrib/fabric_info/apply_settings.h"
#include "contrib/fabric_info/explain.h"
#include "contrib/fabric_info/fit.h"
#include "contrib/fabric_info/map.h"
#include "contrib/fabric_info/report.h"
#include "contrib/fabric_info/settings.h"

namespace {

/// More than any machine has, and what follows from them does not overflow.
constexpr int kMostHosts = 1'000'000;
constexpr int kMostProcesses = 10'000;  ///< of a host

/// A parameter, and what the user has written for it.
using Written = std::pair<std::string, std::string>;

/// The default of a parameter of the component, which the table has.
std::string default_of(const std::string& name) {
  const fabric::ParamSpec& spec = *fabric::ParamReader::find(name);
  return spec.number != nullptr ? std::to_string(spec.default_number) : spec.default_text;
}

/// What the user wants to know of a job that has ended.
struct MapQuestion {
  std::string report;
  std::string picture;
  std::optional<std::uint32_t> rank;
  bool json = false;
};

fabric::Status print(const std::string& text) {
  std::cout << text << std::flush;
  return std::cout ? fabric::Status() : fabric::failure("standard output cannot be written");
}

fabric::Status show_map(const MapQuestion& question) {
  if (!question.picture.empty() && !question.picture.ends_with(".svg")) {
    return fabric::failure("--picture " + question.picture + ": pictures are SVG, and the name must end in .svg");
  }
  auto map = fabric::info::read_map(question.report);
  if (map && question.rank) {
    map = fabric::info::map_of_rank(std::move(*map), *question.rank);
  }
  if (!map) {
    return tl::unexpected(map.error());
  }
  const fabric::Status printed =
      print(question.json ? fabric::info::map_as_json(*map).dump(2) + "\n" : fabric::info::map_as_text(*map));
  return !printed || question.picture.empty()
             ? printed
             : fabric::write_whole_file(question.picture, fabric::info::map_as_svg(*map));
}

int run(int argc, char** argv) {
  fabric::info::Question question;
  fabric::info::Settings settings = fabric::info::Settings::in_environment(environ);
  std::vector<Written> mca;
  std::vector<Written> by_options;
  std::optional<std::uint64_t> memory;
  question.node.cores = sysconf(_SC_NPROCESSORS_ONLN);
  std::vector<std::string> operations;
  bool json = false;

  CLI::App app("Shows the RDMA devices of this host as btl_fabric sees them, and what its queues take.", "fabric_info");
  app.set_version_flag("--version", "fabric_info " FABRIC_VERSION);
  const auto stands_for = [&](const char* option, const std::string& name, const char* help) {
    const auto take = [&by_options, name](const std::string& value) {
      by_options.emplace_back("btl_fabric_" + name, value);
    };
    app.add_option_function<std::string>(option, take, help)->default_str(default_of(name));
  };
  stands_for("-q,--receive-queues", "receive_queues", "the parameter btl_fabric_receive_queues");
  app.add_option("-n,--processes", question.node.processes, "processes of the job on this host")
      ->check(CLI::Range(1, kMostProcesses))
      ->capture_default_str();
  app.add_option("-o,--hosts", question.hosts, "hosts of the job")
      ->check(CLI::Range(1, kMostHosts))
      ->capture_default_str();
  stands_for("-t,--tx-contexts", "tx_contexts", "transmit contexts per endpoint; -1: one for each processor");
  stands_for("-r,--rx-contexts", "rx_contexts",
             "receive contexts per endpoint; 0: as many as transmit contexts, -1: one for each processor");
  stands_for("--rdma-depth", "rdma_depth", "the parameter btl_fabric_rdma_depth");
  stands_for("--cq-size", "cq_size", "the parameter btl_fabric_cq_size");
  app.add_option("--mca", mca, "NAME VALUE: a parameter, as for mpirun; those in the environment count too");
  app.add_option("-e,--explain", operations,
                 "operations to show the plans of: KIND:BYTES[:unregistered], KIND being write, read, add or swap");
  app.add_flag(
      "-f,--fit", question.is_fit_asked,
      "whether the job fits; if not, what is too little, and which receive queues would. The exit status is 1 then");
  app.add_option("--memory", memory,
                 "with --fit: bytes that each process may spend, 0: any; instead of btl_fabric_memory_budget");
  MapQuestion map;
  CLI::Option* const map_option = app.add_option(
      "-m,--map", map.report,
      "which peer of a job is reached by what: FILE is the report that btl_fabric_report FILE.json has written");
  app.add_option("-p,--picture", map.picture, "with --map: a picture of it, too, into this file; SVG")
      ->needs(map_option);
  app.add_option("--rank", map.rank, "with --map: what this process has told, alone")->needs(map_option);
  app.add_flag("-j,--json", json, "JSON instead of tables");
  CLI11_PARSE(app, argc, argv);

  const auto refuse = [](const fabric::Error& error) {
    std::cerr << "fabric_info: " << error.text << "\n";
    return 2;
  };
  if (map_option->count() > 0) {
    map.json = json;
    const fabric::Status shown = show_map(map);
    return shown ? 0 : refuse(shown.error());
  }
  mca.insert(mca.end(), by_options.begin(), by_options.end());
  for (const auto& [name, value] : mca) {
    if (const fabric::Status added = settings.add(name, value); !added) {
      return refuse(added.error());
    }
  }
  if (const fabric::Status applied = fabric::info::apply_settings(settings, memory, question); !applied) {
    return refuse(applied.error());
  }
  for (const std::string& text : operations) {
    const auto operation = fabric::info::parse_operation(text);
    if (!operation) {
      return refuse(operation.error());
    }
    question.operations.push_back(*operation);
  }
  const nlohmann::ordered_json report = fabric::info::report(question);
  if (const fabric::Status printed = print(json ? report.dump(2) + "\n" : fabric::info::as_text(report)); !printed) {
    return refuse(printed.error());
  }
  return !question.is_fit_asked || fabric::info::fits(report) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fabric_info: %s\n", error.what());
    return 1;
  }
}
