// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/counters.h"

namespace fabric {

namespace {

int read_atomic(const mca_base_pvar_t* variable, void* value, void* /*object*/) noexcept {
  const auto* counter = static_cast<const std::atomic<std::uint64_t>*>(variable->ctx);
  *static_cast<unsigned long long*>(value) = counter->load(std::memory_order_relaxed);
  return OPAL_SUCCESS;
}

}  // namespace

void register_counters(const mca_base_component_t* component) {
  for (const CounterSpec& spec : kCounterTable) {
    static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
    const bool is_shared = spec.shared != nullptr;
    void* value = is_shared ? const_cast<void*>(static_cast<const void*>(spec.shared)) : &(counters.*spec.value);
    mca_base_component_pvar_register(
        component, spec.name, spec.help, OPAL_INFO_LVL_5, MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT,
        static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS),
        is_shared ? read_atomic : nullptr, nullptr, nullptr, value);
  }
}

}  // namespace fabric
