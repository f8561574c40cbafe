// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where in a message the process that executes it dies, if a fault rule says so. (test_softhca_stores needs no list: it lets one
// die after each store that others see.)
#include <cstdint>

namespace softhca {

enum class KillAt : uint8_t {
  Nowhere,
  Before,      // nothing has been done
  Middle,      // a receive request has been taken, nothing copied
  Completing,  // the completion of the receive request is written, and not yet in the queue
  Completed,   // it is in the queue, and nobody was told
};

}  // namespace softhca
