// SPDX-License-Identifier: BSD-3-Clause
//
// What became of every message that a main thread has accepted: each arrives once and in order, or who sent it is told.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "test/model/digest.h"
#include "test/model/fabric.h"
#include "test/model/fault.h"

namespace fabric::model {

class Ledger {
 public:
  /// `queues`: what the links have. `in_order`: what goes over one of them arrives in order.
  Ledger(Fault& fault, std::size_t queues, bool in_order) : fault_(fault), queues_(queues), in_order_(in_order) {}

  /// The queue that a message goes over: each in turn, the last one first. What goes over two is not kept in order.
  [[nodiscard]] static std::uint8_t queue_of(std::uint8_t serial, std::size_t queues) {
    return static_cast<std::uint8_t>(queues - 1 - serial % queues);
  }

  /// Returns the message's serial.
  std::uint8_t accepted(std::size_t from, std::size_t to) {
    of(from, to).fates.push_back(Fate::kPending);
    return static_cast<std::uint8_t>(of(from, to).fates.size() - 1);
  }
  void delivered(std::size_t from, std::size_t to, std::uint8_t serial) {
    Way& way = of(from, to);
    Fate& fate = way.fates.at(serial);
    std::uint8_t& next = way.next[queue_of(serial, queues_)];
    if (fate == Fate::kDelivered) {
      fault_.add("a message has arrived twice");
    } else if (in_order_ && serial < next) {
      fault_.add("a message has overtaken another");
    }
    next = static_cast<std::uint8_t>(serial + 1);
    fate = Fate::kDelivered;
  }
  /// The upper layer has been told that it may not have arrived, or has not been taken.
  void failed(std::size_t from, std::size_t to, std::uint8_t serial) {
    Fate& fate = of(from, to).fates.at(serial);
    fate = fate == Fate::kPending ? Fate::kTold : fate;
  }
  /// The upper layer has closed the endpoint, or is gone.
  void drop_all(std::size_t from, std::size_t to) {
    for (Fate& fate : of(from, to).fates) {
      fate = fate == Fate::kPending ? Fate::kDropped : fate;
    }
  }
  [[nodiscard]] bool has_pending(std::size_t from, std::size_t to) const {
    for (const Fate fate : ways_[from][to].fates) {
      if (fate == Fate::kPending) {
        return true;
      }
    }
    return false;
  }
  void add_to(Digest& digest) const {
    for (const auto& row : ways_) {
      for (const Way& way : row) {
        for (const Fate fate : way.fates) {
          digest.add(static_cast<unsigned>(fate));
        }
        digest.add(way.fates.size() << 16U | way.next[1] << 8U | way.next[0]);
      }
    }
  }

 private:
  enum class Fate : std::uint8_t { kPending, kDelivered, kTold, kDropped };
  struct Way {
    std::vector<Fate> fates;
    std::array<std::uint8_t, 2> next{};  ///< of each queue
  };
  Way& of(std::size_t from, std::size_t to) { return ways_[from][to]; }

  Fault& fault_;
  const std::size_t queues_;
  const bool in_order_;
  std::array<std::array<Way, kMostProcesses>, kMostProcesses> ways_;
};

}  // namespace fabric::model
