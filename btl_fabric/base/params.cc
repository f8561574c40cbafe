// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/params.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "btl_fabric/base/param_values.h"
#include "btl_fabric/base/wrong_values.h"
#include "common/base/nearest_name.h"

namespace fabric {

namespace {

Params values;
mca_btl_base_module_t limits;

mca_base_var_info_lvl_t info_level(int level) {
  return static_cast<mca_base_var_info_lvl_t>(OPAL_INFO_LVL_1 + level - 1);
}

/// True if the value of a parameter came from the user and not from our default.
bool set_by_user(const mca_base_component_t* component, const char* name) {
  const int index = mca_base_var_find("opal", component->mca_type_name, component->mca_component_name, name);
  mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
  if (index < 0 || mca_base_var_get_value(index, nullptr, &source, nullptr) != OPAL_SUCCESS) {
    return false;
  }
  return source != MCA_BASE_VAR_SOURCE_DEFAULT;
}

/// What the user wrote for a parameter; null if nothing. Open MPI's value may be another where it could not read that.
const char* written(const mca_base_component_t* component, const char* name) {
  const int index = mca_base_var_find("opal", component->mca_type_name, component->mca_component_name, name);
  const mca_base_var_t* var = nullptr;
  char* variable = nullptr;
  if (index < 0 || mca_base_var_get(index, &var) != OPAL_SUCCESS ||
      mca_base_var_env_name(var->mbv_full_name, &variable) != OPAL_SUCCESS) {
    return nullptr;
  }
  const char* text = std::getenv(variable);
  std::free(variable);
  if (var->mbv_file_value != nullptr && (text == nullptr || var->mbv_source == MCA_BASE_VAR_SOURCE_OVERRIDE)) {
    text = static_cast<const mca_base_var_file_value_t*>(var->mbv_file_value)->mbvfv_value;
  }
  return text;
}

/// All that Open MPI knows of the component, also those that every BTL has.
std::vector<const mca_base_var_t*> variables_of(const mca_base_component_t* component) {
  const mca_base_var_group_t* group = nullptr;
  const int index = mca_base_var_group_find("opal", component->mca_type_name, component->mca_component_name);
  std::vector<const mca_base_var_t*> variables;
  if (index < 0 || mca_base_var_group_get(index, &group) != OPAL_SUCCESS) {
    return variables;
  }
  const std::size_t count = opal_value_array_get_size(const_cast<opal_value_array_t*>(&group->group_vars));
  const auto* const indices = reinterpret_cast<const int*>(group->group_vars.array_items);
  for (std::size_t i = 0; i < count; ++i) {
    const mca_base_var_t* var = nullptr;
    if (mca_base_var_get(indices[i], &var) == OPAL_SUCCESS) {
      variables.push_back(var);
    }
  }
  return variables;
}

std::vector<std::string_view> names_of(const mca_base_component_t* component) {
  std::vector<std::string_view> names;
  for (const mca_base_var_t* var : variables_of(component)) {
    names.emplace_back(var->mbv_variable_name);
  }
  return names;
}

void check_number(const mca_base_component_t* component, const ParamSpec& spec, std::vector<std::string>& wrong) {
  const std::string name = "btl_fabric_" + std::string(spec.name) + " is ";
  const int value = values.*spec.number;
  if (const char* text = written(component, spec.name); text != nullptr) {
    const std::optional<std::int64_t> number = read_value(spec, text);
    if (!number) {
      wrong.push_back(name + '"' + text + "\", but must be a number " + allowed_values(spec));
    } else if (const std::string rule = broken_rule(spec, *number); !rule.empty()) {
      wrong.push_back(name + text + ", but " + rule);
    } else {
      values.*spec.number = static_cast<int>(*number);  // Open MPI knows no words, nor units of time
    }
  } else if (const std::string rule = broken_rule(spec, value); !rule.empty()) {
    wrong.push_back(name + std::to_string(value) + ", but " + rule);
  }
}

/// Of what ompi_info shows as defaults, whatever devices there are.
constexpr PortFacts kAnyPort{.max_message = SIZE_MAX, .largest_queue = SIZE_MAX};

/// Where Open MPI has put the value of a parameter that every BTL has.
size_t mca_btl_base_module_t::*field_of(Limit limit) noexcept {
  switch (limit) {
    case Limit::kEager:
      return &mca_btl_base_module_t::btl_eager_limit;
    case Limit::kRndvEager:
      return &mca_btl_base_module_t::btl_rndv_eager_limit;
    case Limit::kMaxSend:
      return &mca_btl_base_module_t::btl_max_send_size;
    case Limit::kGet:
      return &mca_btl_base_module_t::btl_get_limit;
    case Limit::kPut:
      return &mca_btl_base_module_t::btl_put_limit;
    case Limit::kPipelineSend:
      return &mca_btl_base_module_t::btl_rdma_pipeline_send_length;
    case Limit::kPipelineFragment:
      return &mca_btl_base_module_t::btl_rdma_pipeline_frag_size;
    case Limit::kLeastPipeline:
      return &mca_btl_base_module_t::btl_min_rdma_pipeline_size;
    case Limit::kInline:
    case Limit::kInPlace:
      break;
  }
  return nullptr;
}

}  // namespace

const Params& params() noexcept {
  return values;
}

const mca_btl_base_module_t& module_template() noexcept {
  return limits;
}

void register_params(const mca_base_component_t* component, const mca_btl_base_module_t& offered) {
  mca_base_var_group_component_register(component, "BTL for InfiniBand, RoCE and iWARP through libibverbs");
  for (const ParamSpec& spec : kParamTable) {
    const auto type = spec.number != nullptr ? MCA_BASE_VAR_TYPE_INT : MCA_BASE_VAR_TYPE_STRING;
    void* storage = nullptr;
    if (spec.number != nullptr) {
      values.*spec.number = spec.default_number;
      storage = &(values.*spec.number);
    } else {
      // Open MPI copies the default before it stores anything.
      values.*spec.text = const_cast<char*>(spec.default_text);
      storage = &(values.*spec.text);
    }
    mca_base_component_var_register(component, spec.name, spec.help, type, nullptr, 0,
                                    static_cast<mca_base_var_flag_t>(0), info_level(spec.level),
                                    MCA_BASE_VAR_SCOPE_READONLY, storage);
  }

  limits = offered;
  set_limits(limits, choose_limits(kAnyPort, {}));
  limits.btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT;
  limits.btl_flags |= MCA_BTL_FLAGS_SEND;
  limits.btl_latency = 2;    // microseconds: less than tcp, more than shared memory
  limits.btl_bandwidth = 0;  // 0: taken from each port
  mca_btl_base_param_register(const_cast<mca_base_component_t*>(component), &limits);
}

bool chosen_by_name() {
  const char* selection = opal_btl_base_framework.framework_selection;
  if (selection == nullptr || selection[0] == '^') {
    return false;
  }
  std::string_view rest(selection);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == "fabric") {
      return true;
    }
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return false;
}

std::vector<std::string> check_params(const mca_base_component_t* component) {
  std::vector<std::string> wrong;
  for (const ParamSpec& spec : kParamTable) {
    if (spec.number != nullptr) {
      check_number(component, spec, wrong);
    }
  }
  for (WrongValue& one : wrong_values(values, limit_wishes(component))) {
    wrong.push_back(std::move(one.text));
  }
  return wrong;
}

std::vector<SetParam> set_params(const mca_base_component_t* component) {
  std::vector<SetParam> found;
  for (const mca_base_var_t* var : variables_of(component)) {
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    const char* file = nullptr;
    const char* const text = written(component, var->mbv_variable_name);
    if (text != nullptr && mca_base_var_get_value(var->mbv_index, nullptr, &source, &file) == OPAL_SUCCESS &&
        source != MCA_BASE_VAR_SOURCE_DEFAULT) {
      found.push_back({var->mbv_full_name, text, source, file != nullptr ? file : ""});
    }
  }
  return found;
}

std::vector<std::string> unknown_params(const mca_base_component_t* component) {
  constexpr std::string_view kPrefix = "OMPI_MCA_btl_fabric_";
  std::vector<std::string> unknown;
  for (char* const* one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kPrefix)) {
      continue;
    }
    const std::string ours(name.substr(kPrefix.size()));
    if (mca_base_var_find("opal", component->mca_type_name, component->mca_component_name, ours.c_str()) >= 0) {
      continue;
    }
    const std::string_view nearest = nearest_name(ours, names_of(component));
    unknown.push_back("btl_fabric_" + ours + ": there is no such parameter" +
                      (nearest.empty() ? std::string() : "; is btl_fabric_" + std::string(nearest) + " meant?"));
  }
  return unknown;
}

void set_limits(mca_btl_base_module_t& module, const ProtocolLimits& chosen) noexcept {
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    if (const auto field = field_of(limit); field != nullptr) {
      module.*field = chosen[limit].value;
    }
  }
}

LimitWishes limit_wishes(const mca_base_component_t* component) {
  LimitWishes wishes;
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    const auto field = field_of(limit);
    if (field != nullptr && set_by_user(component, parameter_of(limit))) {
      wishes[limit] = limits.*field;
    }
  }
  if (values.max_inline_data >= 0) {
    wishes[Limit::kInline] = static_cast<std::uint64_t>(values.max_inline_data);
  }
  if (values.in_place_size >= 0) {
    wishes[Limit::kInPlace] = static_cast<std::uint64_t>(values.in_place_size);
  }
  return wishes;
}

}  // namespace fabric
