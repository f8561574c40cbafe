// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric_dump_signal: a signal on which the process says what its connections wait for. mpirun passes SIGUSR1 and SIGUSR2 on to
// all processes of the job.
#pragma once

#include "common/base/result.h"
#include "cpc/manager/connection_manager.h"

namespace fabric::dump_signal {

/// From now on the signal is ours, and makes the next call of progress() look for it. The error says who has it already. Once.
[[nodiscard]] Status watch(int number, cpc::ConnectionManager& connections) noexcept;
/// The signal is what it was before.
void forget() noexcept;
/// True once after the signal has come.
[[nodiscard]] bool take() noexcept;

}  // namespace fabric::dump_signal
