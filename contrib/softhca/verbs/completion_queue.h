// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <infiniband/verbs.h>

#include "verbs/objects.h"

namespace softhca {

// What ibv_create_cq and create_cq_ex have in common. nullptr, with errno set.
Cq* create_completion_queue(ibv_context* context, uint32_t cqe, void* cq_context, ibv_comp_channel* channel,
                            uint32_t comp_vector);
// Receives will complete into the queue: gives it a ring for payloads (layout.h), if it has none and there is memory.
void prepare_to_receive(Cq& cq);

}  // namespace softhca
