// SPDX-License-Identifier: BSD-3-Clause
//
// Shows the RDMA devices of this host as the component sees them, and what a list of receive queues takes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <optional>

#include "btl_fabric/base/param_table.h"
#include "common/base/whole_file.h"
#include "common/ports/port_scan.h"
#include "contrib/fabric_info/explain.h"
#include "contrib/fabric_info/fit.h"
#include "contrib/fabric_info/map.h"
#include "contrib/fabric_info/report.h"
#include "contrib/fabric_info/settings.h"
#include "cpc/queue_pairs/queue_choice.h"

namespace {

/// The default of a parameter of the component.
const fabric::ParamSpec& param(std::string_view name) {
  for (const fabric::ParamSpec& spec : fabric::kParamTable) {
    if (name == spec.name) {
      return spec;
    }
  }
  std::abort();  // the table has it
}

/// A parameter that is a number, unless an option of the command line has set it.
template <class T>
fabric::Status take(const fabric::info::Settings& settings, const char* name, const CLI::Option* option, T& into) {
  const auto value = settings.number(name);
  if (!value) {
    return tl::unexpected(value.error());
  }
  if (*value && (option == nullptr || option->count() == 0)) {
    into = static_cast<T>(**value);
  }
  return {};
}

/// The parameters that the user has set, but for those that options stand for, and the receive queues.
fabric::Status apply(const fabric::info::Settings& settings, fabric::info::Question& question, const CLI::Option* depth,
                     const CLI::Option* cq_size) {
  int max_inline = param("max_inline_data").default_number;
  for (const fabric::Status& taken :
       {take(settings, "rdma_depth", depth, question.rdma_depth), take(settings, "cq_size", cq_size, question.cq_size),
        take(settings, "mtu", nullptr, question.mtu), take(settings, "max_inline_data", nullptr, max_inline)}) {
    if (!taken) {
      return taken;
    }
  }
  question.wanted_inline = max_inline < 0 ? fabric::kAutoInline : static_cast<std::uint32_t>(max_inline);
  auto wishes = settings.limit_wishes();
  if (!wishes) {
    return tl::unexpected(wishes.error());
  }
  question.limits = *wishes;
  return fabric::check_limits(question.limits, question.queues.largest());
}

/// What the user wants to know of a job that has ended.
struct MapQuestion {
  std::string report;
  std::string picture;
  std::optional<std::uint32_t> rank;
  bool json = false;
};

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
  std::cout << (question.json ? fabric::info::map_as_json(*map).dump(2) + "\n" : fabric::info::map_as_text(*map));
  return question.picture.empty() ? fabric::Status()
                                  : fabric::write_whole_file(question.picture, fabric::info::map_as_svg(*map));
}

int run(int argc, char** argv) {
  std::string list = param("receive_queues").default_text;
  fabric::info::Question question;
  fabric::info::Settings settings = fabric::info::Settings::in_environment(environ);
  std::vector<std::pair<std::string, std::string>> mca;
  question.node.cores = sysconf(_SC_NPROCESSORS_ONLN);
  question.rdma_depth = static_cast<std::uint32_t>(param("rdma_depth").default_number);
  question.cq_size = static_cast<std::uint32_t>(param("cq_size").default_number);
  std::vector<std::string> operations;
  bool json = false;

  CLI::App app("Shows the RDMA devices of this host as btl_fabric sees them, and what its queues take.", "fabric_info");
  app.set_version_flag("--version", "fabric_info " FABRIC_VERSION);
  const CLI::Option* const queues_option =
      app.add_option("-q,--receive-queues", list, "the parameter btl_fabric_receive_queues")->capture_default_str();
  app.add_option("-n,--processes", question.node.processes, "processes of the job on this host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-o,--hosts", question.hosts, "hosts of the job")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("-t,--tx-contexts", question.contexts.tx_ctx_cnt, "transmit contexts per endpoint; -1: the most")
      ->capture_default_str();
  app.add_option("-r,--rx-contexts", question.contexts.rx_ctx_cnt,
                 "receive contexts per endpoint; 0: as many as transmit contexts, -1: the most")
      ->capture_default_str();
  const CLI::Option* const depth_option =
      app.add_option("--rdma-depth", question.rdma_depth, "the parameter btl_fabric_rdma_depth")->capture_default_str();
  const CLI::Option* const cq_size_option =
      app.add_option("--cq-size", question.cq_size, "the parameter btl_fabric_cq_size")->capture_default_str();
  app.add_option("--mca", mca, "NAME VALUE: a parameter, as for mpirun; those in the environment count too");
  app.add_option("-e,--explain", operations,
                 "operations to show the plans of: KIND:BYTES[:unregistered], KIND being write, read, add or swap");
  app.add_flag(
      "-f,--fit", question.is_fit_asked,
      "whether the job fits; if not, what is too little, and which receive queues would. The exit status is 1 then");
  app.add_option("--memory", question.memory, "with --fit: bytes that each process may spend; 0: any")
      ->capture_default_str();
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
  for (const auto& [name, value] : mca) {
    if (const fabric::Status added = settings.add(name, value); !added) {
      return refuse(added.error());
    }
  }
  if (queues_option->count() == 0) {
    list = settings.text("receive_queues").value_or(list);
  }
  question.are_queues_chosen = list == fabric::cpc::kAutoQueues;
  if (question.are_queues_chosen) {
    question.queues = fabric::info::chosen_queues(question, fabric::Transport::kRoce, INT64_MAX, {}, 0);
  } else if (auto queues = fabric::ReceiveQueues::parse(list); queues) {
    question.queues = std::move(*queues);
  } else {
    return refuse(queues.error());
  }
  if (const fabric::Status applied = apply(settings, question, depth_option, cq_size_option); !applied) {
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
  std::cout << (json ? report.dump(2) + "\n" : fabric::info::as_text(report));
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
