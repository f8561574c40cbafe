// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/wrong_values.h"

#include <algorithm>
#include <cstdint>

#include "btl_fabric/base/param_reader.h"
#include "common/accounting/queue_space.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/port_filter.h"
#include "common/ports/port_rails.h"
#include "common/ports/steering.h"
#include "common/ports/subnet_list.h"
#include "cpc/queue_pairs/queue_choice.h"
#include "cpc/registry/registry.h"

namespace fabric {
namespace {

using WrongValues = std::vector<WrongValue>;

/// A message has the headers of Open MPI's upper layers in it, and what they tell peers about memory: up to 64 bytes in
/// 4.1, more in 5.0.
constexpr std::size_t kLeastMessage = 128;

/// That rules can be read, and name contexts that were asked for: how many are granted is not known yet.
void check_steering(const Params& values, WrongValues& wrong) {
  if (values.rx_steering == nullptr) {
    return;
  }
  const auto rules = parse_steering(values.rx_steering);
  if (!rules) {
    wrong.push_back({"rx_steering", "btl_fabric_rx_steering: " + rules.error().text});
    return;
  }
  const int contexts = values.tx_contexts < 0 || values.rx_contexts < 0
                           ? static_cast<int>(kMostSteeredContext) + 1
                           : std::max(values.tx_contexts, values.rx_contexts);
  for (const SteeringRule& rule : *rules) {
    if (rule.context >= contexts) {
      wrong.push_back({"rx_steering", "btl_fabric_rx_steering is \"" + std::string(values.rx_steering) +
                                          "\", and a rule names context " + std::to_string(rule.context) +
                                          ", but there are " + std::to_string(contexts) +
                                          ", counted from 0: raise btl_fabric_rx_contexts"});
      return;
    }
  }
}

void check_report(const Params& values, WrongValues& wrong) {
  const std::string_view report = values.report == nullptr ? "" : values.report;
  if (!report.empty() && report != "0" && report != "1" && report != "2" && !report.ends_with(".json")) {
    wrong.push_back({"report", "btl_fabric_report is \"" + std::string(report) +
                                   "\", but must be 0, 1, 2 or the name of a file that ends in .json"});
  }
}

void check_queues(const Params& values, const LimitWishes& wishes, WrongValues& wrong) {
  const std::string_view text = values.receive_queues == nullptr ? "" : values.receive_queues;
  const auto queues =
      text == cpc::kAutoQueues ? Result<ReceiveQueues>(cpc::queues_of_level(0)) : ReceiveQueues::parse(text);
  if (!queues) {
    wrong.push_back({"receive_queues", queues.error().text});
    return;
  }
  const std::size_t largest = queues->largest();
  if (largest < kLeastMessage) {
    wrong.push_back({"receive_queues", "btl_fabric_receive_queues is " + queues->canonical() +
                                           ", and its largest queue takes " + std::to_string(largest) +
                                           " bytes, but one queue at least must take " + std::to_string(kLeastMessage) +
                                           ": the headers of Open MPI's own messages"});
  } else if (const Status checked = check_limits(wishes, largest); !checked) {
    wrong.push_back({"", checked.error().text});
  }
}

/// A list that is set, but cannot be read.
template <class Parse>
void check_list(std::string_view name, const char* list, Parse parse, WrongValues& wrong) {
  if (list == nullptr) {
    return;
  }
  if (const auto read = parse(list); !read) {
    wrong.push_back({name, "btl_fabric_" + std::string(name) + ": " + read.error().text});
  }
}

void check_lists(const Params& values, WrongValues& wrong) {
  check_list("queue_costs", values.queue_costs, &parse_costs, wrong);
  check_list(
      "if_include", values.if_include, [](const char* list) { return PortFilter::parse(list, true); }, wrong);
  check_list(
      "if_exclude", values.if_exclude, [](const char* list) { return PortFilter::parse(list, false); }, wrong);
  check_list("subnets", values.subnets, &SubnetList::parse, wrong);
  check_list("rails", values.rails, &PortRails::parse, wrong);
  const auto methods = [](const char* list) { return cpc::parse_cpc_list(list, cpc::kCpcTraits); };
  check_list("cpc_include", values.cpc_include, methods, wrong);
  check_list("cpc_exclude", values.cpc_exclude, methods, wrong);
  // The methods read their own ones, and name them.
  if (const auto made = cpc::make_cpcs(ParamReader(values)); !made) {
    wrong.push_back({values.oob_if_exclude != nullptr ? "oob_if_exclude" : "oob_if_include", made.error().text});
  }
}

/// At most one of two is set.
void check_pair(std::string_view include_name, const char* include, std::string_view exclude_name, const char* exclude,
                WrongValues& wrong) {
  if (include != nullptr && exclude != nullptr) {
    wrong.push_back({exclude_name, "btl_fabric_" + std::string(include_name) + " (" + include + ") and btl_fabric_" +
                                       std::string(exclude_name) + " (" + exclude + ") are both set: set one of them"});
  }
}

}  // namespace

std::vector<WrongValue> wrong_values(const Params& values, const LimitWishes& wishes) {
  WrongValues wrong;
  check_steering(values, wrong);
  check_report(values, wrong);
  check_queues(values, wishes, wrong);
  check_lists(values, wrong);
  check_pair("if_include", values.if_include, "if_exclude", values.if_exclude, wrong);
  check_pair("cpc_include", values.cpc_include, "cpc_exclude", values.cpc_exclude, wrong);
  return wrong;
}

}  // namespace fabric
