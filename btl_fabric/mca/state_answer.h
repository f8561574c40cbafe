// SPDX-License-Identifier: BSD-3-Clause
//
// What this process answers contrib/fabric_hang: the main thread's part, which the progress thread passes on. fabric_hang(1) has the names.
#pragma once

#include <memory>
#include <span>

#include "btl_fabric/mca/module.h"
#include "cpc/manager/connection_manager.h"

namespace fabric {

/// For whoever holds all locks.
void answer_question(std::span<const std::unique_ptr<Module>> modules, cpc::ConnectionManager& connections) noexcept;

}  // namespace fabric
