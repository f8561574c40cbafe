// SPDX-License-Identifier: BSD-3-Clause
//
// How two processes agree that a link may go which neither needs now, so that its queue pairs serve others. Who needs it no more
// asks, by the last message on each queue, and sends nothing until it hears an answer: goodbye, which ends the link, or that the
// peer needs it. Each queue keeps its order, so whoever has the question on all queues has all that was sent before it; and
// whoever asks has the completions of all that it waits for. So nothing is lost with the link.
#pragma once

#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/path/link.h"

namespace fabric {

/// A link, for that purpose. Belongs to whoever holds the context's lock.
class LinkRest {
 public:
  explicit LinkRest(Link& link) noexcept : link_(link) {}

  /// The link is up, nothing of ours is under way, nothing waits, and nothing is owed but credits. Messages that the device has
  /// copied may still be on their way.
  [[nodiscard]] bool is_idle() const noexcept;
  /// Something has been sent or has come since the last call.
  [[nodiscard]] bool take_use() noexcept;
  /// Asks the peer, over every queue, whether the link may go, which is idle and not of X queues. What is sent meanwhile waits
  /// elsewhere. PathEvents::rest_declined() or goodbye_arrived() says what it answers.
  void ask() noexcept;
  /// The answer to the peer that asks so, if we need the link. It is up.
  void decline() noexcept;
  /// The peer needs the link: it is up again, and sends what has waited, in order.
  void resume(FragmentQueue& messages, RdmaRequestQueue& requests) noexcept;

  // For the packet path
  /// The peer asks over a queue. True if it has over all.
  [[nodiscard]] bool hear(LinkQueue& queue) noexcept;
  /// We have asked over all queues, and nothing else has become of the link since.
  [[nodiscard]] bool has_asked() const noexcept;

 private:
  Link& link_;
};

}  // namespace fabric
