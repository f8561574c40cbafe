// SPDX-License-Identifier: BSD-3-Clause
//
// What endpoints do and wait for, for somebody who looks for the reason of a hang: in words (btl_fabric_dump_signal), or as JSON for
// contrib/fabric_hang.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// Of a port's endpoints in a context. Belongs to whoever holds the context's lock.
class EndpointsDescription {
 public:
  /// Looks at them, too: since when nothing has moved is known by looks from time to time.
  explicit EndpointsDescription(Endpoints& endpoints) noexcept : endpoints_(endpoints) { endpoints.look_at_all(); }

  /// Appends some lines for each peer with which something is under way, and one for all others.
  void append_to(std::string& text) const;
  /// Appends lines about one of them, whatever it does.
  void append_one(std::string& text, const Endpoint& endpoint) const;
  /// An array with all endpoints that have or had a connection. fabric_hang(1) has the names.
  [[nodiscard]] nlohmann::ordered_json as_json() const;

 private:
  const Endpoints& endpoints_;
};

}  // namespace fabric
