// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/state_answer.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "btl_fabric/mca/mpi_call.h"
#include "btl_fabric/peer/endpoints_description.h"

namespace fabric {

void answer_question(std::span<const std::unique_ptr<Module>> modules, cpc::ConnectionManager& connections) noexcept
    try {
  using Json = nlohmann::ordered_json;
  MpiCall call = mpi_call_of_this_thread();
  Json ports = Json::array();
  for (const auto& module : modules) {
    ports.push_back({{"port", module->name()}, {"peers", EndpointsDescription(module->endpoints()).as_json()}});
  }
  const Json answer{{"version", FABRIC_VERSION},
                    {"call", std::move(call.function)},
                    {"caller", std::move(call.caller)},
                    {"ports", std::move(ports)}};
  connections.answer(answer.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
} catch (const std::bad_alloc&) {  // it can be asked again
}

}  // namespace fabric
