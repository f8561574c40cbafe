// SPDX-License-Identifier: BSD-3-Clause
//
// Shows the RDMA devices of this host as the component sees them, and what a list of receive queues takes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "btl_fabric/base/param_table.h"
#include "contrib/fabric_info/explain.h"
#include "contrib/fabric_info/report.h"

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

int run(int argc, char** argv) {
  std::string list = param("receive_queues").default_text;
  fabric::info::Question question;
  question.node.cores = sysconf(_SC_NPROCESSORS_ONLN);
  question.rdma_depth = static_cast<std::uint32_t>(param("rdma_depth").default_number);
  question.cq_size = static_cast<std::uint32_t>(param("cq_size").default_number);
  std::vector<std::string> operations;
  bool json = false;

  CLI::App app("Shows the RDMA devices of this host as btl_fabric sees them, and what its queues take.", "fabric_info");
  app.set_version_flag("--version", "fabric_info " FABRIC_VERSION);
  app.add_option("-q,--receive-queues", list, "the parameter btl_fabric_receive_queues")->capture_default_str();
  app.add_option("-n,--processes", question.node.processes, "processes of the job on this host")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-o,--hosts", question.hosts, "hosts of the job")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("-t,--tx-contexts", question.contexts.tx_ctx_cnt, "transmit contexts per endpoint; -1: the most")
      ->capture_default_str();
  app.add_option("--rdma-depth", question.rdma_depth, "the parameter btl_fabric_rdma_depth")->capture_default_str();
  app.add_option("--cq-size", question.cq_size, "the parameter btl_fabric_cq_size")->capture_default_str();
  app.add_option("-e,--explain", operations,
                 "operations to show the plans of: KIND:BYTES[:unregistered], KIND being write, read, add or swap");
  app.add_flag("-j,--json", json, "JSON instead of tables");
  CLI11_PARSE(app, argc, argv);

  auto queues = fabric::ReceiveQueues::parse(list);
  if (!queues) {
    std::cerr << "fabric_info: " << queues.error().text << "\n";
    return 2;
  }
  question.queues = std::move(*queues);
  for (const std::string& text : operations) {
    const auto operation = fabric::info::parse_operation(text);
    if (!operation) {
      std::cerr << "fabric_info: " << operation.error().text << "\n";
      return 2;
    }
    question.operations.push_back(*operation);
  }
  const nlohmann::ordered_json report = fabric::info::report(question);
  std::cout << (json ? report.dump(2) + "\n" : fabric::info::as_text(report));
  return 0;
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
