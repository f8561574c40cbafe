// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// By what processes see that they have the same fabric/layout.h.
#include "fabric/layout.h"

namespace softhca {

// Another number for every layout that this file has had: of two builds, one reads something else where the other wrote. What
// sizes and places do not show, a change of meaning, takes the next version.
constexpr uint64_t layout_magic() {
  constexpr uint64_t kVersion = 9;
  uint64_t hash = kVersion;
  for (const uint64_t part : {uint64_t{kSlots},
                              uint64_t{kSlotBytes},
                              sizeof(SlotHeader),
                              sizeof(RecvRing),
                              sizeof(CqEntry),
                              sizeof(CqShared),
                              sizeof(QpShared),
                              sizeof(OwnTraffic),
                              sizeof(SrqShared),
                              sizeof(MrEntry),
                              sizeof(Mail),
                              sizeof(CopyRequest),
                              sizeof(PortShared),
                              sizeof(XrcdShared),
                              sizeof(CmListener),
                              sizeof(FlowShared),
                              sizeof(GroupMember),
                              sizeof(Hub),
                              offsetof(SlotHeader, pid),
                              offsetof(SlotHeader, life),
                              offsetof(Slot, copies),
                              offsetof(Slot, mailbox),
                              offsetof(Slot, cqs),
                              offsetof(Slot, srqs),
                              offsetof(Slot, qps),
                              offsetof(Slot, sent),
                              offsetof(Slot, mrs),
                              offsetof(Slot, arena),
                              offsetof(Hub, ports),
                              offsetof(Hub, xrcds),
                              offsetof(Hub, listeners)})
    hash = (hash ^ part) * 0x100000001b3;
  return uint64_t{0x736f6674} << 32 | (hash ^ hash >> 32) % (uint64_t{1} << 32);  // "soft" and the rest
}
constexpr uint64_t kLayoutMagic = layout_magic();

}  // namespace softhca
