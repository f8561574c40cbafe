// SPDX-License-Identifier: BSD-3-Clause
//
// What is wrong with the values of the parameters, beyond the range of each number: the component does not start with such values, and
// fabric_doctor tells of them before. Without Open MPI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "btl_fabric/base/param_table.h"
#include "common/ports/protocol_limits.h"

namespace fabric {

struct WrongValue {
  std::string_view name;  ///< of the parameter, as kParamTable has it; empty: one that every BTL has
  std::string text;       ///< names it with its prefix, and says which rule it breaks
};

/// Lists that cannot be read, values that do not go together. Null texts are not set.
/// `wishes`: the limits that the user has set.
[[nodiscard]] std::vector<WrongValue> wrong_values(const Params& values, const LimitWishes& wishes);

}  // namespace fabric
