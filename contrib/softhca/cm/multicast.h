// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "cm/identifier.h"

namespace softhca::cm {

// Whether it is the address of a multicast group. There are none on iWARP.
bool is_group(const sockaddr* address);

}  // namespace softhca::cm
