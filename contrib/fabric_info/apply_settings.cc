// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_info/apply_settings.h"

#include <string>
#include <utility>

#include "btl_fabric/base/param_reader.h"
#include "common/ports/port_scan.h"
#include "cpc/queue_pairs/queue_choice.h"

namespace fabric::info {
namespace {

Status apply_queues(const std::string& list, Question& question) {
  question.are_queues_chosen = list == cpc::kAutoQueues;
  if (question.are_queues_chosen) {
    question.queues = chosen_queues(question, Transport::kRoce, INT64_MAX, question.costs.value_or(DeviceCosts{}), 0);
    return {};
  }
  auto queues = ReceiveQueues::parse(list);
  if (!queues) {
    return tl::unexpected(std::move(queues).error());
  }
  question.queues = std::move(*queues);
  return {};
}

}  // namespace

Result<Params> numbers_of(const Settings& settings) {
  Params values;
  for (const ParamSpec& spec : kParamTable) {
    if (spec.number == nullptr) {
      continue;
    }
    const auto number = settings.number(spec.name);
    if (!number) {
      return tl::unexpected(number.error());
    }
    values.*spec.number = static_cast<int>(number->value_or(spec.default_number));
  }
  return values;
}

Status apply_params(const Params& values, std::uint64_t memory, const LimitWishes& limits, Question& question) {
  question.contexts = {values.tx_contexts, values.rx_contexts};
  question.rdma_depth = static_cast<std::uint32_t>(values.rdma_depth);
  question.cq_size = static_cast<std::uint32_t>(values.cq_size);
  question.mtu = values.mtu;
  question.gid_index = values.gid_index;
  question.wanted_inline =
      values.max_inline_data < 0 ? kAutoInline : static_cast<std::uint32_t>(values.max_inline_data);
  question.memory = memory;
  question.limits = limits;
  if (const std::string costs = values.queue_costs == nullptr ? "" : values.queue_costs; !costs.empty()) {
    const auto read = parse_costs(costs);
    if (!read) {
      return failure("btl_fabric_queue_costs: " + read.error().text);
    }
    question.costs = *read;
  }
  return apply_queues(values.receive_queues == nullptr ? "" : values.receive_queues, question);
}

Status apply_settings(const Settings& settings, std::optional<std::uint64_t> memory, Question& question) {
  auto values = numbers_of(settings);
  if (!values) {
    return tl::unexpected(values.error());
  }
  const auto limits = settings.limit_wishes();
  if (!limits) {
    return tl::unexpected(limits.error());
  }
  std::string costs = settings.text("queue_costs").value_or("");
  std::string queues = settings.text("receive_queues").value_or(ParamReader::find("receive_queues")->default_text);
  values->queue_costs = costs.data();
  values->receive_queues = queues.data();
  const auto budget = static_cast<std::uint64_t>(values->memory_budget);
  if (const Status applied = apply_params(*values, memory.value_or(budget), *limits, question); !applied) {
    return applied;
  }
  return check_limits(question.limits, question.queues.largest());
}

}  // namespace fabric::info
