// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "cpc/connection_manager.h"

namespace fabric::cpc {
namespace {

bool serves(const CpcOffer& offer, std::uint16_t port) noexcept {
  return port < kMaxPorts && (offer.ports >> port & 1U) != 0;
}

}  // namespace

const CpcOffer* choose_cpc(const ProcessInfo& ours, std::uint16_t our_port, const ProcessInfo& theirs,
                           std::uint16_t their_port) noexcept {
  const CpcOffer* best = nullptr;
  std::uint8_t best_priority = 0;
  for (const CpcOffer& their : theirs.offers) {
    for (const CpcOffer& our : ours.offers) {
      if (our.kind != their.kind || !serves(our, our_port) || !serves(their, their_port)) {
        continue;
      }
      // Symmetric in both sides, and so is the choice.
      const std::uint8_t priority = std::max(our.priority, their.priority);
      if (best == nullptr || priority > best_priority || (priority == best_priority && their.kind < best->kind)) {
        best = &their;
        best_priority = priority;
      }
    }
  }
  return best;
}

}  // namespace fabric::cpc
