// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of the endpoints of a port whose device is gone (IBV_EVENT_DEVICE_FATAL). It gives no completions any more: those of what
// was under way are made up (path/lost_device.h). All links break, and no new one is made: what is sent goes by other devices from now
// on (endpoint_detour.cc), also to peers that no link has led to so far. Where no other device leads, the endpoint fails.
#pragma once

#include <span>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// Endpoints, for that purpose. Belongs to whoever holds the context's lock.
class DeviceLoss {
 public:
  explicit DeviceLoss(Endpoints& endpoints) noexcept : endpoints_(endpoints) {}

  /// The device is gone. Takes effect when Endpoints::progress() is called the next time, and not within it; with several contexts
  /// not before take_effect_in_all().
  void begin() noexcept;
  /// In all contexts of the port where it has begun, if progress() runs in none of them. For whoever holds all their locks. False: it is
  /// to be tried again; so too if it throws, for want of memory.
  [[nodiscard]] bool take_effect_in_all();
  /// For Endpoints.
  void take_effect_alone();

 private:
  void take_effect(std::span<PacketPath* const> contexts);
  void end_links();
  void lose(Endpoint& endpoint);

  Endpoints& endpoints_;
};

}  // namespace fabric
