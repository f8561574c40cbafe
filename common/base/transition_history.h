// SPDX-License-Identifier: BSD-3-Clause
//
// The last transitions of a connection or an endpoint, for whoever wants to know how it came to where it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace fabric {

/// Of something with states of this type; to_string() must know both types.
template <class State, class Event>
class TransitionHistory {
 public:
  static constexpr std::size_t kKept = 8;

  void add(State from, Event event, State to) noexcept { ring_[count_++ % kKept] = {from, event, to}; }

  /// "Closed -ConnectWanted-> Posting, Posting -ReceivesPosted-> RequestSent", oldest first.
  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::size_t i = count_ - std::min(count_, kKept); i < count_; ++i) {
      const Transition& one = ring_[i % kKept];
      all += all.empty() ? "" : ", ";
      all.append(to_string(one.from)).append(" -").append(to_string(one.event)).append("-> ").append(to_string(one.to));
    }
    return all;
  }

 private:
  struct Transition {
    State from;
    Event event;
    State to;
  };
  std::array<Transition, kKept> ring_{};
  std::size_t count_ = 0;
};

}  // namespace fabric
