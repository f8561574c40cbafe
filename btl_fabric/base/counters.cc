// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/counters.h"

#include <algorithm>
#include <atomic>
#include <span>

namespace fabric {

namespace {

int read_counter(const mca_base_pvar_t* variable, void* value, void* /*object*/) noexcept {
  *static_cast<unsigned long long*>(value) = value_of(*static_cast<const CounterSpec*>(variable->ctx));
  return OPAL_SUCCESS;
}

/// Values of a level: a handle is made for so many, and read() does not hear for how many.
std::atomic<std::uint32_t> level_count = 0;

int bind_level(mca_base_pvar_t* variable, mca_base_pvar_event_t event, void* /*object*/, int* count) noexcept {
  if (event == MCA_BASE_PVAR_HANDLE_BIND) {
    const bool is_one = static_cast<const LevelSpec*>(variable->ctx)->own != nullptr;
    *count = is_one ? 1 : static_cast<int>(level_count.load());
    return *count > 0 ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE;
  }
  return OPAL_SUCCESS;
}

int read_level(const mca_base_pvar_t* variable, void* value, void* /*object*/) noexcept {
  const auto& spec = *static_cast<const LevelSpec*>(variable->ctx);
  if (spec.own != nullptr) {
    *static_cast<unsigned long long*>(value) = spec.own->load(std::memory_order_relaxed);
    return OPAL_SUCCESS;
  }
  const std::span by_rank(static_cast<unsigned long long*>(value), level_count.load());
  std::fill(by_rank.begin(), by_rank.end(), 0);
  RoomListing::add_up(OPAL_PROC_MY_NAME.jobid, by_rank, spec.of_peer);
  return OPAL_SUCCESS;
}

constexpr auto kReadFlags =
    static_cast<mca_base_pvar_flag_t>(MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS);

}  // namespace

std::uint64_t value_of(const CounterSpec& spec) noexcept {
  if (spec.shared != nullptr) {
    return spec.shared->load(std::memory_order_relaxed);
  }
  std::uint64_t sum = 0;
  for (Counters& context : counters) {
    sum += std::atomic_ref(context.*spec.value).load(std::memory_order_relaxed);
  }
  return sum;
}

void set_level_count(std::uint32_t processes) noexcept {
  std::uint32_t none = 0;
  level_count.compare_exchange_strong(none, processes);
}

void register_counters(const mca_base_component_t* component) {
  for (const CounterSpec& spec : kCounterTable) {
    static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
    mca_base_component_pvar_register(component, spec.name, spec.help, OPAL_INFO_LVL_5, MCA_BASE_PVAR_CLASS_COUNTER,
                                     MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT,
                                     kReadFlags, read_counter, nullptr, nullptr, const_cast<CounterSpec*>(&spec));
  }
  for (const LevelSpec& spec : kLevelTable) {
    mca_base_component_pvar_register(component, spec.name, spec.help, OPAL_INFO_LVL_5, MCA_BASE_PVAR_CLASS_LEVEL,
                                     MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, nullptr, MCA_BASE_VAR_BIND_NO_OBJECT,
                                     kReadFlags, read_level, nullptr, bind_level, const_cast<LevelSpec*>(&spec));
  }
}

}  // namespace fabric
