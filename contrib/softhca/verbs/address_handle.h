// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <infiniband/verbs.h>

#include "fabric/fabric.h"

namespace softhca {

// Whether an address vector is one that the device can use: 0 or EINVAL. Whether anybody has the address is another question.
int check_address(Fabric& fabric, const ibv_ah_attr& ah);

}  // namespace softhca
