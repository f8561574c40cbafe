// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/counters.h"

namespace fabric {

namespace {

int read_counter(const mca_base_pvar_t* variable, void* value, void* /*object*/) noexcept {
  const auto& spec = *static_cast<const CounterSpec*>(variable->ctx);
  std::uint64_t sum = 0;
  if (spec.shared != nullptr) {
    sum = spec.shared->load(std::memory_order_relaxed);
  } else {
    for (Counters& context : counters) {
      sum += std::atomic_ref(context.*spec.value).load(std::memory_order_relaxed);
    }
  }
  *static_cast<unsigned long long*>(value) = sum;
  return OPAL_SUCCESS;
}

}  // namespace

void register_counters(const mca_base_component_t* component) {
  for (const CounterSpec& spec : kCounterTable) {
    static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
    mca_base_component_pvar_register(
        component, spec.name, spec.help, OPAL_INFO_LVL_5, MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT,
        static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS), read_counter,
        nullptr, nullptr, const_cast<CounterSpec*>(&spec));
  }
}

}  // namespace fabric
