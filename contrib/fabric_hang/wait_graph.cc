// SPDX-License-Identifier: BSD-3-Clause
#include "contrib/fabric_hang/wait_graph.h"

#include <algorithm>
#include <deque>

namespace fabric::hang {
namespace {

constexpr auto kNobody = static_cast<std::size_t>(-1);

}  // namespace

void WaitGraph::add(std::size_t who, std::size_t for_whom) {
  std::vector<std::size_t>& all = waits_for_[who];
  if (std::find(all.begin(), all.end(), for_whom) == all.end()) {
    all.push_back(for_whom);
    held_up_[for_whom].push_back(who);
  }
}

/// A search in breadth. Empty: there is none.
std::vector<std::size_t> WaitGraph::shortest_cycle(std::size_t through) const {
  std::vector<std::size_t> comes_from(waits_for_.size(), kNobody);
  std::deque<std::size_t> next{through};
  while (!next.empty()) {
    const std::size_t at = next.front();
    next.pop_front();
    for (const std::size_t other : waits_for_[at]) {
      if (other == through) {
        std::vector<std::size_t> cycle;
        for (std::size_t one = at; one != through; one = comes_from[one]) {
          cycle.push_back(one);
        }
        cycle.push_back(through);
        std::reverse(cycle.begin(), cycle.end());
        return cycle;
      }
      if (comes_from[other] == kNobody) {
        comes_from[other] = at;
        next.push_back(other);
      }
    }
  }
  return {};
}

std::vector<std::size_t> WaitGraph::reached(const Edges& edges, std::size_t from) {
  std::vector<bool> is_found(edges.size());
  std::vector<std::size_t> found;
  std::deque<std::size_t> next{from};
  while (!next.empty()) {
    for (const std::size_t other : edges[next.front()]) {
      if (!is_found[other]) {
        is_found[other] = true;
        found.push_back(other);
        next.push_back(other);
      }
    }
    next.pop_front();
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::vector<std::size_t>> WaitGraph::cycles() const {
  std::vector<std::vector<std::size_t>> all;
  std::vector<bool> is_told(waits_for_.size());
  for (std::size_t i = 0; i < waits_for_.size(); ++i) {
    if (is_told[i] || waits_for_[i].empty() || held_up_[i].empty()) {
      continue;
    }
    const std::vector<std::size_t> after = reached(waits_for_, i);
    if (!std::binary_search(after.begin(), after.end(), i)) {
      continue;
    }
    for (const std::size_t one : reached(held_up_, i)) {
      is_told[one] = is_told[one] || std::binary_search(after.begin(), after.end(), one);
    }
    all.push_back(shortest_cycle(i));
  }
  return all;
}

std::vector<std::size_t> WaitGraph::held_up_by(std::size_t whom) const {
  std::vector<std::size_t> all = reached(held_up_, whom);
  std::erase(all, whom);
  return all;
}

}  // namespace fabric::hang
