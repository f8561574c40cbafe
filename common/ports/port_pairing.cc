// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/port_pairing.h"

#include <algorithm>
#include <cstddef>

#include "common/ports/gid_choice.h"

namespace fabric {
namespace {

/// Pairs each unpaired port of ours, in order, with the first free port of theirs that it reaches. Reaching is an
/// equivalence (equal links, subnets and rails), so that the n-th of a class meets the n-th, whichever side computes it.
void pair_free_ports(std::span<const PortAddress> ours, std::span<const PortAddress> theirs, bool any_subnet,
                     std::vector<std::optional<std::uint16_t>>& pairs, std::vector<bool>& taken) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    for (std::size_t j = 0; j < theirs.size() && !pairs[i]; ++j) {
      if (!taken[j] && reachable(ours[i], theirs[j], any_subnet)) {
        pairs[i] = static_cast<std::uint16_t>(j);
        taken[j] = true;
      }
    }
  }
}

}  // namespace

bool reachable(const PortAddress& a, const PortAddress& b, bool any_subnet) noexcept {
  return a.link == b.link && a.path == b.path && a.roce == b.roce && a.rail == b.rail &&
         (any_subnet || a.subnet == b.subnet);
}

std::vector<std::optional<std::uint16_t>> pair_ports(std::span<const PortAddress> ours,
                                                     std::span<const PortAddress> theirs, bool any_subnet) {
  std::vector<std::optional<std::uint16_t>> pairs(ours.size());
  std::vector<bool> taken(theirs.size());
  // Equal subnets first even if any will do: a route between different ones is the user's claim, and the longer way.
  pair_free_ports(ours, theirs, false, pairs, taken);
  if (any_subnet) {
    pair_free_ports(ours, theirs, true, pairs, taken);
  }
  return pairs;
}

std::string why_unpaired(const std::string& name, const PortAddress& port, std::span<const PortAddress> theirs) {
  const auto near = [&port](const PortAddress& one) { return one.link == port.link && one.subnet == port.subnet; };
  if (std::any_of(theirs.begin(), theirs.end(), [&](const PortAddress& one) {
        return near(one) && one.rail == port.rail && one.roce != port.roce;
      })) {
    return name + " uses RoCE v" + std::to_string(port.roce) +
           ", and the peer's port on its subnet another version: btl_fabric_gid_index chooses";
  }
  if (std::any_of(theirs.begin(), theirs.end(),
                  [&](const PortAddress& one) { return near(one) && one.rail != port.rail; })) {
    return name + " is on rail " + std::to_string(port.rail) +
           ", and the peer has no port left on that rail of its subnet: btl_fabric_rails says which belong together";
  }
  return "no port of the peer is on the subnet of " + name + " (" + to_string(port.subnet) + ")";
}

std::vector<std::optional<std::uint16_t>> pair_contexts(std::span<const PortAddress> ours, std::size_t our_contexts,
                                                        std::span<const PortAddress> theirs, std::size_t their_contexts,
                                                        bool any_subnet) {
  const auto once = [](std::span<const PortAddress> ports, std::size_t contexts) {
    std::vector<PortAddress> first;
    for (std::size_t i = 0; i < ports.size(); i += contexts) {
      first.push_back(ports[i]);
    }
    return first;
  };
  const auto pairs = pair_ports(once(ours, our_contexts), once(theirs, their_contexts), any_subnet);
  std::vector<std::optional<std::uint16_t>> all(ours.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (std::size_t context = 0; pairs[i] && context < std::min(our_contexts, their_contexts); ++context) {
      all[i * our_contexts + context] = static_cast<std::uint16_t>(*pairs[i] * their_contexts + context);
    }
  }
  return all;
}

}  // namespace fabric
