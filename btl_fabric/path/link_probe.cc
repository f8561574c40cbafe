// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/link_probe.h"

namespace fabric {

bool LinkProbe::is_needed() const noexcept {
  const LinkQueue& queue = link_.rdma_queue();
  const bool may_ask =
      link_.is_up() || link_.state() == Link::State::kResting || link_.state() == Link::State::kResuming;
  return may_ask && link_.is_quiet() && queue.sends->batches.is_empty() && queue.sends->has_room();
}

void LinkProbe::send() noexcept {
  LinkQueue& queue = link_.rdma_queue();
  if (const int error = queue.post_empty_write(); error != 0) {
    link_.post_refused(queue, error);
  }
}

}  // namespace fabric
