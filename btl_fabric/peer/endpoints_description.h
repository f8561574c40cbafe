// SPDX-License-Identifier: BSD-3-Clause
//
// What endpoints do and wait for, in words, for somebody who looks for the reason of a hang (btl_fabric_dump_signal).
#pragma once

#include <string>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// Of a port's endpoints in a context. Belongs to whoever holds the context's lock.
class EndpointsDescription {
 public:
  explicit EndpointsDescription(const Endpoints& endpoints) noexcept : endpoints_(endpoints) {}

  /// Appends some lines for each peer with which something is under way, and one for all others.
  void append_to(std::string& text) const;

 private:
  const Endpoints& endpoints_;
};

}  // namespace fabric
