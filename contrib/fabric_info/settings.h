// SPDX-License-Identifier: BSD-3-Clause
//
// The parameters of the component that the user has set, as for mpirun: in the environment, or by --mca NAME VALUE. Open MPI's
// files of parameters are not read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/ports/protocol_limits.h"

namespace fabric::info {

/// What was written, by names of parameters without the btl_fabric_ in front.
class Settings {
 public:
  /// Those that are in an environment, of the form of environ: OMPI_MCA_btl_fabric_NAME=VALUE.
  [[nodiscard]] static Settings in_environment(const char* const* environment);
  /// Of all parameters, also those that every BTL has; some come twice.
  [[nodiscard]] static std::vector<std::string_view> names();
  /// As --mca NAME VALUE, which is stronger than the environment. Parameters of other components are passed over. The error
  /// names a parameter that the component does not have.
  [[nodiscard]] Status add(const std::string& name, const std::string& value);

  /// Nothing if the parameter is not set.
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const;
  /// The same for a number. The error says what is wrong with it.
  [[nodiscard]] Result<std::optional<std::int64_t>> number(const std::string& name) const;
  /// The limits of protocols among them.
  [[nodiscard]] Result<LimitWishes> limit_wishes() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace fabric::info
