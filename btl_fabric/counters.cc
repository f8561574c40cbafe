// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/counters.h"

namespace fabric {

void register_counters(const mca_base_component_t* component) {
  for (const CounterSpec& spec : kCounterTable) {
    static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
    mca_base_component_pvar_register(
        component, spec.name, spec.help, OPAL_INFO_LVL_5, MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT,
        static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS), nullptr,
        nullptr, nullptr, &(counters.*spec.value));
  }
}

}  // namespace fabric
