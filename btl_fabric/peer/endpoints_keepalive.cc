// SPDX-License-Identifier: BSD-3-Clause
//
// Peers of which nothing has been heard for btl_fabric_keepalive seconds are asked whether they are there (path/link_probe.h). The
// progress thread says when; nothing on the packet path looks at a clock.
#include <new>
#include <vector>

#include "btl_fabric/path/link_probe.h"
#include "btl_fabric/peer/endpoints.h"

namespace fabric {

/// Without memory it is done the next time.
void Endpoints::on(const cpc::KeepAliveDue& /*upcall*/) noexcept try {
  const std::uint64_t before = std::exchange(keep_alive_round_, ++idle_round_);
  std::vector<Endpoint*> silent;
  look_at_all();
  {
    const auto guard = known_guard();
    for (const auto& [name, endpoint] : endpoints_) {
      if (endpoint->idle_since(idle_round_) <= before) {
        silent.push_back(endpoint.get());
      }
    }
  }
  for (Endpoint* const endpoint : silent) {
    endpoint->ask_whether_there();
  }
} catch (const std::bad_alloc&) {
}

void Endpoint::ask_whether_there() noexcept {
  const bool waits_for_peer =
      state_ == EndpointState::kConnected || state_ == EndpointState::kResting || state_ == EndpointState::kResuming;
  if (waits_for_peer && link_ && LinkProbe(*link_).is_needed()) {
    ++owner_.path().counters().keepalives;
    LinkProbe(*link_).send();
  }
}

}  // namespace fabric
