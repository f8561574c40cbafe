// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of the endpoints of a port whose device is gone (IBV_EVENT_DEVICE_FATAL). It gives no completions any more: those of what
// was under way are made up (path/lost_device.h). All links break, and no new one is made: what is sent goes by other devices from now
// on (endpoint_detour.cc), also to peers that no link has led to so far. Where no other device leads, the endpoint fails.
#pragma once

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// Endpoints, for that purpose. Belongs to whoever holds the context's lock.
class DeviceLoss {
 public:
  explicit DeviceLoss(Endpoints& endpoints) noexcept : endpoints_(endpoints) {}

  /// The device is gone. Takes effect when Endpoints::progress() is called the next time, and not within it.
  void begin() noexcept;
  /// For Endpoints.
  void take_effect();

 private:
  void end_links();
  void lose(Endpoint& endpoint);

  Endpoints& endpoints_;
};

}  // namespace fabric
