// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints that Open MPI has taken away, until their goodbyes have arrived and their last completions are in. Thousands may go at the
// same time, at the end of a job: one is found, added and taken as fast as when there are few.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "btl_fabric/peer/endpoint.h"

namespace fabric {

/// Belongs to whoever holds the lock of the context. There may be several to the same peer.
class ClosingEndpoints {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// In no order.
  [[nodiscard]] Endpoint& operator[](std::size_t index) const noexcept { return *all_[index]; }
  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }

  /// Takes it. For want of memory it throws instead, and nothing has changed.
  void add(std::unique_ptr<Endpoint>& endpoint);
  /// Gives one away; the last one takes its index.
  [[nodiscard]] std::unique_ptr<Endpoint> take(std::size_t index) noexcept;
  /// One to a peer of which `is_wanted`, or null.
  template <class Is>
  [[nodiscard]] Endpoint* find(const ProcessName& peer, Is is_wanted) const noexcept {
    for (auto [at, end] = by_peer_.equal_range(peer); at != end; ++at) {
      if (is_wanted(*at->second)) {
        return at->second;
      }
    }
    return nullptr;
  }

  template <class Function>
  void for_each_to(const ProcessName& peer, Function function) const {
    for (auto [at, end] = by_peer_.equal_range(peer); at != end; ++at) {
      function(*at->second);
    }
  }

 private:
  std::vector<std::unique_ptr<Endpoint>> all_;
  std::unordered_multimap<ProcessName, Endpoint*> by_peer_;  ///< the same
};

}  // namespace fabric
