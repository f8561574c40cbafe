// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// XRC domains and XRC target QPs: what several processes have open at once. Both lie in the hub.
#include <cstdint>

#include "fabric/fabric.h"

namespace softhca {

// The XRC target QPs. Their index is also that of their QpShared in slot 0.
namespace xrc_targets {

// A new target of the domain, which this process has open, in RESET; 0: no more.
uint32_t create(Fabric& fabric, uint32_t xrcd);
// This process opens the target too. False: there is no such target in this domain.
bool open(Fabric& fabric, uint32_t index, uint32_t xrcd);
// This process no longer has it open. Who is the last ends the target.
void close(Fabric& fabric, uint32_t index);

}  // namespace xrc_targets

}  // namespace softhca
