// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/peer/closing_endpoints.h"

#include <utility>

namespace fabric {

void ClosingEndpoints::add(std::unique_ptr<Endpoint>& endpoint) {
  const auto entry = by_peer_.emplace(endpoint->key().peer, endpoint.get());
  try {
    all_.emplace_back();
  } catch (...) {
    by_peer_.erase(entry);
    throw;
  }
  all_.back() = std::move(endpoint);
}

std::unique_ptr<Endpoint> ClosingEndpoints::take(std::size_t index) noexcept {
  std::unique_ptr<Endpoint> taken = std::exchange(all_[index], nullptr);
  std::swap(all_[index], all_.back());
  all_.pop_back();
  auto [at, end] = by_peer_.equal_range(taken->key().peer);
  while (at->second != taken.get()) {
    ++at;
  }
  by_peer_.erase(at);
  return taken;
}

}  // namespace fabric
