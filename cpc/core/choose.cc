// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/core/choose.h"

#include <algorithm>

namespace fabric::cpc {
namespace {

bool serves(const CpcOffer& offer, std::uint16_t port) noexcept {
  return port < kMaxPorts && (offer.ports >> port & 1U) != 0;
}

/// What a side says about a kind that does not serve one of its ports.
std::string refusal_of(const ProcessInfo& side, CpcKind kind) {
  for (const CpcOffer& offer : side.offers) {
    if (offer.kind != kind) {
      continue;
    }
    if (offer.ports != 0) {
      return "it serves other ports only";
    }
    std::string text(reinterpret_cast<const char*>(offer.blob.data()), offer.blob.size());
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }
  return "not offered";
}

bool offers(const ProcessInfo& side, CpcKind kind, std::uint16_t port) noexcept {
  return std::any_of(side.offers.begin(), side.offers.end(),
                     [&](const CpcOffer& offer) { return offer.kind == kind && serves(offer, port); });
}

/// True if both ports are InfiniBand ports, of different subnets.
bool are_apart(const ProcessInfo& ours, std::uint16_t our_port, const ProcessInfo& theirs,
               std::uint16_t their_port) noexcept {
  if (our_port >= ours.ports.size() || their_port >= theirs.ports.size()) {
    return false;
  }
  const PortAddress& here = ours.ports[our_port];
  const PortAddress& there = theirs.ports[their_port];
  return here.link == Transport::kInfiniBand && there.link == Transport::kInfiniBand && here.subnet != there.subnet;
}

}  // namespace

std::string why_no_cpc(std::span<const CpcTraits> known, const ProcessInfo& ours, std::uint16_t our_port,
                       const ProcessInfo& theirs, std::uint16_t their_port) {
  std::string text;
  for (const CpcTraits& one : known) {
    text.append(text.empty() ? "" : "; ").append(one.name).append(": ");
    const bool here = offers(ours, one.kind, our_port);
    const bool there = offers(theirs, one.kind, their_port);
    if (!here) {
      text += "not here (" + refusal_of(ours, one.kind) + ")";
    }
    if (!there) {
      text += std::string(here ? "" : ", ") + "not at the peer (" + refusal_of(theirs, one.kind) + ")";
    }
    if (here && there) {
      text += "it connects InfiniBand ports by LID, and these are of different subnets";
    }
  }
  return text;
}

const CpcOffer* choose_cpc(std::span<const CpcTraits> known, const ProcessInfo& ours, std::uint16_t our_port,
                           const ProcessInfo& theirs, std::uint16_t their_port) noexcept {
  const bool apart = are_apart(ours, our_port, theirs, their_port);
  const CpcOffer* best = nullptr;
  std::uint8_t best_priority = 0;
  for (const CpcOffer& their : theirs.offers) {
    for (const CpcOffer& our : ours.offers) {
      if (our.kind != their.kind || !serves(our, our_port) || !serves(their, their_port)) {
        continue;
      }
      const auto traits =
          std::find_if(known.begin(), known.end(), [&](const CpcTraits& one) { return one.kind == our.kind; });
      if (traits == known.end() || (apart && traits->within_subnet)) {
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
