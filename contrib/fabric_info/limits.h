// SPDX-License-Identifier: BSD-3-Clause
//
// The limits of protocols that the component would choose for a port, each with its reason.
#pragma once

#include <infiniband/verbs.h>

#include <nlohmann/json.hpp>

#include "contrib/fabric_info/report.h"

namespace fabric::info {

/// A device, as far as limits depend on it.
struct DeviceFacts {
  const ibv_device_attr* attributes = nullptr;
  std::uint32_t max_inline = 0;
  RegistrationCost registration;
};

/// Puts them into what is told of `port`, which is on `link`: an array of {"limit", "value", "reason"}.
void add_limits(nlohmann::ordered_json& port, const ibv_port_attr& state, Transport link, const DeviceFacts& device,
                const Question& question);

}  // namespace fabric::info
