// SPDX-License-Identifier: BSD-3-Clause
//
// Registration of the MCA parameters of param_table.h, and of those that every BTL has.
#pragma once

#include <string>
#include <vector>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/param_table.h"
#include "common/ports/protocol_limits.h"

namespace fabric {

/// The values in force, valid after register_params().
[[nodiscard]] const Params& params() noexcept;

/// What Open MPI's own btl_* parameters set, copied into every module; what the user has left alone, a module chooses.
[[nodiscard]] const mca_btl_base_module_t& module_template() noexcept;

/// Registers all parameters with Open MPI. `offered`: the functions, flags and handle size of a module that can do
/// everything; users can turn flags off. Called once, while the component is loaded.
void register_params(const mca_base_component_t* component, const mca_btl_base_module_t& offered);

/// True if the user chose this BTL by name: --mca btl fabric,self.
[[nodiscard]] bool chosen_by_name();

/// Checks all values, by the table and by wrong_values(). Each text names a parameter, what the user wrote, and the rule that it breaks.
[[nodiscard]] std::vector<std::string> check_params(const mca_base_component_t* component);
/// Parameters of btl_fabric that are set in this process's environment, where mpirun's --mca puts them too, and that nobody has: a text
/// for each, with the name that is most like it.
[[nodiscard]] std::vector<std::string> unknown_params(const mca_base_component_t* component);

/// A parameter that somebody has set, and where: what mpirun's command line says comes by the environment.
struct SetParam {
  std::string name;   ///< in full
  std::string value;  ///< as it was written
  mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
  std::string file;  ///< that has it, or nothing
};
/// Those of the component, and of every BTL for it, that do not have their defaults.
[[nodiscard]] std::vector<SetParam> set_params(const mca_base_component_t* component);

/// Puts those of them that Open MPI reads there into a module.
void set_limits(mca_btl_base_module_t& module, const ProtocolLimits& chosen) noexcept;
/// The limits of protocols that the user has set, here or among the parameters that every BTL has.
[[nodiscard]] LimitWishes limit_wishes(const mca_base_component_t* component);

}  // namespace fabric
