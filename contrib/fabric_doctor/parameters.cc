// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_doctor/parameters.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "btl_fabric/base/param_reader.h"
#include "btl_fabric/base/wrong_values.h"
#include "common/base/nearest_name.h"
#include "contrib/fabric_doctor/parameter_files.h"
#include "cpc/registry/registry.h"

namespace fabric::doctor {
namespace {

constexpr std::string_view kPrefix = "btl_fabric_";

/// The value of a parameter, and the file that has it; without: it is in the environment.
struct Written {
  std::string value;
  std::string file;
};

/// Where Open MPI could not be asked: what it does without its own configuration.
std::string usual_files() {
  if (const char* const files = std::getenv("OMPI_MCA_mca_base_param_files"); files != nullptr) {
    return files;
  }
  const char* const home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.openmpi/mca-params.conf";
}

/// By name, without the prefix: the files', over them the environment's, and over them what Open MPI says that it has.
std::map<std::string, Written> all_that_are_set(const OpenMpiView& open_mpi) {
  std::map<std::string, Written> all;
  const MpiSetting* const files = open_mpi.find("mca_base_param_files");
  for (FileLine& line : read_parameter_files(files == nullptr ? usual_files() : files->value)) {
    if (line.name.starts_with(kPrefix)) {
      all[line.name.substr(kPrefix.size())] = {std::move(line.value), std::move(line.file)};
    }
  }
  const std::string variable = "OMPI_MCA_" + std::string(kPrefix);
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with(variable) && equals != std::string_view::npos) {
      all[std::string(text.substr(variable.size(), equals - variable.size()))] = {std::string(text.substr(equals + 1)),
                                                                                  {}};
    }
  }
  for (const MpiSetting& one : open_mpi.settings) {
    const bool is_known = std::find(kFilesOfAJob.begin(), kFilesOfAJob.end(), one.name) == kFilesOfAJob.end();
    if (one.name.starts_with(kPrefix) && one.is_set && is_known) {
      all[one.name.substr(kPrefix.size())].value = one.value;
    }
  }
  return all;
}

/// What to say of a name that no parameter has.
std::string misspelt(const std::string& name, const std::string& file) {
  const std::string_view nearest = nearest_name(name, info::Settings::names());
  return std::string(kPrefix) + name + (file.empty() ? "" : ", which is in " + file) +
         (nearest.empty() ? "" : "; is " + std::string(kPrefix) + std::string(nearest) + " meant?");
}

}  // namespace

Parameters Parameters::of(const OpenMpiView& open_mpi) {
  Parameters result;
  for (const ParamSpec& spec : kParamTable) {
    result.set_default(spec);
  }
  for (const auto& [name, written] : all_that_are_set(open_mpi)) {
    if (!result.take(name, written.value)) {
      result.unknown_.push_back(misspelt(name, written.file));
    }
  }
  result.check_values();
  return result;
}

void Parameters::set_default(const ParamSpec& spec) {
  if (spec.number != nullptr) {
    values_.*spec.number = spec.default_number;
  } else {
    values_.*spec.text = spec.default_text == nullptr ? nullptr : texts_.emplace_back(spec.default_text).data();
  }
}

/// False if there is no such parameter.
bool Parameters::take(const std::string& name, const std::string& value) {
  set_.push_back(std::string(kPrefix) + name + " " + value);
  if (const Status added = settings_.add(std::string(kPrefix) + name, value); !added) {
    return false;
  }
  const ParamSpec* const spec = ParamReader::find(name);
  if (spec == nullptr) {
    return true;  // one that every BTL has
  }
  if (spec->text != nullptr) {
    values_.*spec->text = value.empty() ? nullptr : texts_.emplace_back(value).data();  // as Open MPI has it
  } else if (const auto number = settings_.number(name); number && *number) {
    values_.*spec->number = static_cast<int>(**number);
  } else if (!number) {
    wrong_.push_back(number.error().text);
  }
  return true;
}

/// Those that are each in their range, but cannot be read or do not go together.
void Parameters::check_values() {
  const auto wishes = settings_.limit_wishes();
  if (!wishes && std::find(wrong_.begin(), wrong_.end(), wishes.error().text) == wrong_.end()) {
    wrong_.push_back(wishes.error().text);
  }
  for (const WrongValue& one : wrong_values(values_, wishes.value_or(LimitWishes()))) {
    wrong_.push_back(one.text);
    if (const ParamSpec* const spec = ParamReader::find(one.name); spec != nullptr) {
      set_default(*spec);
    }
  }
}

PortChoice Parameters::port_choice() const {
  PortChoice choice;
  if (values_.if_include != nullptr) {
    choice.filter = PortFilter::parse(values_.if_include, true).value_or(PortFilter());
  } else if (values_.if_exclude != nullptr) {
    choice.filter = PortFilter::parse(values_.if_exclude, false).value_or(PortFilter());
  }
  if (values_.subnets != nullptr) {
    choice.subnets = SubnetList::parse(values_.subnets).value_or(SubnetList());
  }
  if (values_.rails != nullptr) {
    choice.rails = PortRails::parse(values_.rails).value_or(PortRails());
  }
  choice.gid_index = values_.gid_index;
  choice.mtu = values_.mtu;
  choice.pkey = static_cast<std::uint16_t>(values_.pkey);
  choice.max_inline = values_.max_inline_data;
  choice.max_ports = values_.max_ports;
  choice.ignore_locality = true;  // the doctor is bound to no processor
  return choice;
}

cpc::CpcSet Parameters::cpcs() const {
  if (values_.cpc_include != nullptr) {
    return cpc::parse_cpc_list(values_.cpc_include, cpc::kCpcTraits).value_or(cpc::kEveryCpc);
  }
  if (values_.cpc_exclude != nullptr) {
    return cpc::kEveryCpc & ~cpc::parse_cpc_list(values_.cpc_exclude, cpc::kCpcTraits).value_or(0);
  }
  return cpc::kEveryCpc;
}

}  // namespace fabric::doctor
