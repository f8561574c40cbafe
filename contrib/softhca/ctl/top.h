// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// softhca-ctl top: who uses the fabric, and how much.
#include <span>

namespace softhca {

// `arguments`: --once, --json. Without --once, a table each second until the fabric ends or the user has seen enough.
void top(std::span<char* const> arguments);

}  // namespace softhca
