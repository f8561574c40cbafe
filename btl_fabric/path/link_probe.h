// SPDX-License-Identifier: BSD-3-Clause
//
// Finding out whether the peer's adapter still answers, over a link that nothing goes over (btl_fabric_keepalive). Who only waits for
// messages would not notice otherwise that the peer or the way to it is gone. A write of no bytes touches no memory, takes neither a
// receive nor a credit, and is answered by the adapter alone: the peer's process may compute, or have been stopped.
#pragma once

#include "btl_fabric/path/link.h"

namespace fabric {

/// A link, for that purpose. Belongs to whoever holds the context's lock.
class LinkProbe {
 public:
  explicit LinkProbe(Link& link) noexcept : link_(link) {}

  /// Nothing of ours that has a time limit is under way, so that nothing would fail.
  [[nodiscard]] bool is_needed() const noexcept;
  /// Asks. What is wrong is said as of anything else that fails (PathEvents::link_failed()).
  void send() noexcept;

 private:
  Link& link_;
};

}  // namespace fabric
