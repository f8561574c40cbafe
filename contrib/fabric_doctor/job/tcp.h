// SPDX-License-Identifier: BSD-3-Clause
//
// Whether TCP connections come through to where a peer's oob listens.
#pragma once

#include <span>
#include <string>

#include "common/base/result.h"
#include "cpc/oob/oob_addresses.h"

namespace fabric::doctor {

/// Opens a TCP connection to the first of the addresses that answers, and closes it: as text. The error lists all.
[[nodiscard]] Result<std::string> reach_by_tcp(std::span<const cpc::SocketAddress> addresses);

}  // namespace fabric::doctor
