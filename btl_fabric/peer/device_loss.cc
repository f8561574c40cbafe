// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/device_loss.h"

#include <new>
#include <string>
#include <vector>

#include "btl_fabric/path/lost_device.h"

namespace fabric {

[[gnu::cold]] void DeviceLoss::begin() noexcept {
  if (endpoints_.loss_ == Endpoints::Loss::kNone) {
    endpoints_.loss_ = Endpoints::Loss::kHeardOf;
    endpoints_.has_chores_ = true;
  }
}

[[gnu::cold]] bool DeviceLoss::take_effect_in_all() {
  std::vector<PacketPath*> paths;
  for (Endpoints* const one : endpoints_.contexts_) {
    if (one->path().is_in_progress()) {
      return false;
    }
    paths.push_back(&one->path());
  }
  for (Endpoints* const one : endpoints_.contexts_) {
    DeviceLoss(*one).take_effect(paths);
  }
  return true;
}

[[gnu::cold]] void DeviceLoss::take_effect_alone() {
  if (endpoints_.contexts_.size() <= 1) {
    PacketPath* const only = &endpoints_.path();
    take_effect({&only, 1});
  }
}

/// Without memory it is done the next time.
[[gnu::cold]] void DeviceLoss::take_effect(std::span<PacketPath* const> contexts) {
  using Loss = Endpoints::Loss;
  if (endpoints_.loss_ != Loss::kHeardOf) {
    return;
  }
  endpoints_.loss_ = Loss::kUnderWay;
  try {
    endpoints_.take_what_is_here();  // it has arrived, or come
    LostDevice path(endpoints_.path());
    path.stop();
    end_links();
    path.flush(contexts);
  } catch (const std::bad_alloc&) {
    endpoints_.loss_ = Loss::kHeardOf;
    throw;
  }
  for (EndpointLink* one = endpoints_.ending_.first(); one != nullptr; one = one->next.get()) {
    one->post_drain_markers();
  }
  for (const auto& one : endpoints_.closing_) {
    if (one->link_) {
      one->link_->post_drain_markers();
    }
  }
  endpoints_.loss_ = Loss::kDone;
}

void DeviceLoss::end_links() {
  std::vector<Endpoint*> all;
  {
    const auto guard = endpoints_.known_guard();
    for (const auto& [name, endpoint] : endpoints_.endpoints_) {
      all.push_back(endpoint.get());
    }
    for (const auto& endpoint : endpoints_.closing_) {
      all.push_back(endpoint.get());
    }
    if (endpoints_.self_ && endpoints_.self_->rdma_outstanding() > 0) {
      all.push_back(endpoints_.self_.get());
    }
  }
  for (Endpoint* const one : all) {
    endpoints_.guarded(one, [&] { lose(*one); });
  }
}

void DeviceLoss::lose(Endpoint& endpoint) {
  if (endpoint.state() == EndpointState::kIdle) {
    return;  // there is no link
  }
  std::string text = kDeviceIsGone;
  if (!endpoints_.leads_elsewhere(endpoint)) {
    text += ", and no other device leads to the peer";
  }
  endpoint.apply(EndpointEvent::kLost, {.text = text});
}

}  // namespace fabric
