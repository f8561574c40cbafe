// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/open_mpi.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "contrib/fabric_doctor/child.h"

namespace fabric::doctor {
namespace {

using Json = nlohmann::ordered_json;

/// Names of variables begin with these where mpirun or srun tell a process which of a job it is. A job of one must not hear
/// it: it would take the place of this process.
constexpr std::array<std::string_view, 10> kOfTheJob = {
    "PMIX_",          "PMI_",           "PRTE_",        "ORTE_",         "SLURM_",
    "OMPI_MCA_orte_", "OMPI_MCA_prte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir"};

bool is_of_the_job(std::string_view variable) {
  // The rank alone makes no process one of a job, and softhca may choose its devices by it.
  if (variable.starts_with("OMPI_") && !variable.starts_with("OMPI_MCA_") &&
      !variable.starts_with("OMPI_COMM_WORLD_RANK=")) {
    return true;
  }
  return std::any_of(kOfTheJob.begin(), kOfTheJob.end(), [variable](auto name) { return variable.starts_with(name); });
}

std::vector<std::string> environment_of_one() {
  std::vector<std::string> result;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const bool is_a_file = std::any_of(kFilesOfAJob.begin(), kFilesOfAJob.end(), [variable](std::string_view name) {
      return variable.substr(0, variable.find('=')) == "OMPI_MCA_" + std::string(name);
    });
    if (!is_of_the_job(variable) && !is_a_file) {
      result.emplace_back(variable);
    }
  }
  for (const std::string_view name : kFilesOfAJob) {
    result.push_back("OMPI_MCA_" + std::string(name) + "=");  // stronger than a file of parameters that sets it
  }
  result.emplace_back("OMPI_MCA_ess_singleton_isolated=1");  // without a daemon of its own
  result.emplace_back("OMPI_MCA_mca_base_component_show_load_errors=1");
  return result;
}

constexpr std::size_t kMostLines = 2;
/// About btl_fabric: a heading, and some of what is wrong. The check of the parameters tells all.
constexpr std::size_t kMostLinesOfOurs = 4;

/// What it said that is worth telling: the first lines with `about` in them, as one.
std::string lines_of(const std::string& text, std::string_view about, std::size_t most) {
  std::string result;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < text.size() && count < most;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    line.erase(0, line.find_first_not_of(" \t*-"));
    if (!line.empty() && line.find(about) != std::string::npos && line.find_first_not_of("-= ") != std::string::npos) {
      result += (result.empty() ? "" : " ") + line;
      ++count;
    }
  }
  return result;
}

}  // namespace

const MpiSetting* OpenMpiView::find(const std::string& name) const noexcept {
  const auto found =
      std::find_if(settings.begin(), settings.end(), [&name](const MpiSetting& one) { return one.name == name; });
  return found == settings.end() ? nullptr : &*found;
}

OpenMpiView ask_open_mpi() {
  const ChildResult child = run_child(kAnswerOption, environment_of_one());
  OpenMpiView view;
  view.said = lines_of(child.said, "btl_fabric", kMostLinesOfOurs);
  const Json answer = Json::parse(child.answer, nullptr, false);
  if (!answer.is_discarded() && answer.is_object()) {
    from_json(answer, view);
  } else {
    const std::string said = view.said.empty() ? lines_of(child.said, "", kMostLines) : view.said;
    view.failure = child.has_ended ? "MPI_Init fails" + (said.empty() ? "" : ": " + said) : "MPI_Init does not return";
  }
  if (view.load_error.empty() && view.component.empty()) {
    view.load_error = lines_of(child.said, "mca_btl_fabric", kMostLines);
  }
  return view;
}

void to_json(Json& json, const OpenMpiView& view) {
  Json btls = Json::array();
  for (const MpiBtl& one : view.btls) {
    btls.push_back({{"name", one.name}, {"exclusivity", one.exclusivity}});
  }
  Json settings = Json::array();
  for (const MpiSetting& one : view.settings) {
    settings.push_back({{"name", one.name}, {"value", one.value}, {"source", one.source}, {"is_set", one.is_set}});
  }
  json = {{"failure", view.failure},
          {"version", view.version},
          {"pml", view.pml},
          {"btls", std::move(btls)},
          {"settings", std::move(settings)},
          {"folders", view.folders},
          {"component", view.component},
          {"component_version", view.component_version},
          {"load_error", view.load_error}};
}

void from_json(const Json& json, OpenMpiView& view) {
  view.failure = json.at("failure").get<std::string>();
  view.version = json.at("version").get<std::string>();
  view.pml = json.at("pml").get<std::string>();
  view.folders = json.at("folders").get<std::vector<std::string>>();
  view.component = json.at("component").get<std::string>();
  view.component_version = json.at("component_version").get<std::string>();
  view.load_error = json.at("load_error").get<std::string>();
  for (const Json& one : json.at("btls")) {
    view.btls.push_back({one.at("name").get<std::string>(), one.at("exclusivity").get<std::uint32_t>()});
  }
  for (const Json& one : json.at("settings")) {
    view.settings.push_back({one.at("name").get<std::string>(), one.at("value").get<std::string>(),
                             one.at("source").get<std::string>(), one.at("is_set").get<bool>()});
  }
}

}  // namespace fabric::doctor
