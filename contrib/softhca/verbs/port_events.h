// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Async events of ports and devices: what softhca-ctl changes in the hub's port table, every process of that node tells its
// contexts.
#include "fabric/fabric.h"

namespace softhca::port_events {

// Notes how things are now, and asks the engine to be told when that changes. Once per process.
void start(Fabric& fabric);

}  // namespace softhca::port_events
