// SPDX-License-Identifier: BSD-3-Clause
//
// The parameters of the component as a job would have them: those of Open MPI's files, of the environment and of --mca.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "btl_fabric/base/param_table.h"
#include "common/ports/port_scan.h"
#include "contrib/fabric_doctor/open_mpi.h"
#include "contrib/fabric_info/settings.h"
#include "cpc/core/cpc_traits.h"

namespace fabric::doctor {

/// Values that are wrong have their defaults, and are told of.
class Parameters {
 public:
  Parameters() = default;
  Parameters(Parameters&&) = default;
  Parameters& operator=(Parameters&&) = default;

  /// What Open MPI has read, or its files and the environment where it could not be asked or has not loaded the component.
  [[nodiscard]] static Parameters of(const OpenMpiView& open_mpi);

  [[nodiscard]] const Params& values() const noexcept { return values_; }
  [[nodiscard]] const info::Settings& settings() const noexcept { return settings_; }
  /// Each a sentence that names a parameter.
  [[nodiscard]] const std::vector<std::string>& wrong() const noexcept { return wrong_; }
  /// Names that no parameter has, where they are, and what may be meant: a job goes on without them.
  [[nodiscard]] const std::vector<std::string>& unknown() const noexcept { return unknown_; }
  /// Names and values of those that the user has set.
  [[nodiscard]] const std::vector<std::string>& set() const noexcept { return set_; }
  [[nodiscard]] PortChoice port_choice() const;
  /// The connection methods that cpc_include and cpc_exclude leave.
  [[nodiscard]] cpc::CpcSet cpcs() const;

 private:
  [[nodiscard]] bool take(const std::string& name, const std::string& value);
  void set_default(const ParamSpec& spec);
  void check_values();

  Params values_;
  info::Settings settings_;
  std::list<std::string> texts_;  ///< that `values_` points to
  std::vector<std::string> wrong_;
  std::vector<std::string> unknown_;
  std::vector<std::string> set_;
};

}  // namespace fabric::doctor
