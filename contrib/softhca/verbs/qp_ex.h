// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>

#include "verbs/objects.h"

namespace softhca {

// Whether QPs of that type can have these operations (ibv_qp_create_send_ops_flags).
bool supports_send_ops(ibv_qp_type type, uint64_t flags);
// Gives the QP the functions of ibv_qp_ex for these operations.
void set_send_ops(Qp& qp, uint64_t flags);

}  // namespace softhca
