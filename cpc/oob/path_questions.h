// SPDX-License-Identifier: BSD-3-Clause
//
// Asks the subnet administrator for paths to peers' ports (btl_fabric_path_records), by way of librdmacm: the kernel asks
// for us, so that no MAD device and no IPoIB is needed. Answers are kept in the PathTable of the port that asked; so each
// pair of ports is asked for once, and by each method at most once if both ask at the same time.
//
// Both sides of a connection ask, and need not hear the same: each tells the other its own LID and packet size (address_for()
// in queue_pair_path.h).
//
// Nothing happens for ports without a PathTable: no channel is opened, and nobody waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/ports/port_address.h"
#include "cpc/cm/cm_events.h"
#include "cpc/loop/event_loop.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// Progress thread only.
class PathQuestions {
 public:
  /// Questions under way at once: a job that starts must not flood the subnet administrator.
  static constexpr std::size_t kMostAtOnce = 16;
  /// After so many questions without an answer, one after the other, no more are asked.
  static constexpr unsigned kMostUnanswered = 16;

  class Wait;
  /// `timeout_ms`: for the peer's address to be found, and again for the path. `tell` hears once why there was no answer, in
  /// words that are the same in all processes.
  PathQuestions(event_base* loop, unsigned timeout_ms, std::function<void(std::string reason)> tell);
  ~PathQuestions();
  PathQuestions(const PathQuestions&) = delete;
  PathQuestions& operator=(const PathQuestions&) = delete;

  /// From now on paths from `port` are asked for, if it has a PathTable. It outlives this.
  void add(const PortContext& port);

  /// For the path to a peer's port. Null if there is nothing to wait for: no path is wanted, it is known, or nobody answers. Else
  /// `done` is called once, on a later turn of the loop, unless the Wait is destroyed before; `done` may destroy it.
  [[nodiscard]] std::unique_ptr<Wait> ask(std::uint16_t port, const Gid& peer, std::function<void()> done);

  /// What a message from `port` to the peer says of our address: address_for(), where paths are asked for.
  void fill_in(std::uint16_t port, const Gid& peer, PortAddress& address) const;

 private:
  class Question;
  using Key = std::pair<std::uint16_t, Gid>;  ///< our port, and the peer's

  void begin_next();
  void finish(Question& question, std::optional<PathRecord> path, const std::string& why_not);

  event_base* const loop_;
  const unsigned timeout_ms_;
  std::function<void(std::string reason)> tell_;
  CmEvents events_;
  std::map<std::uint16_t, const PortContext*> ports_;   ///< those with a PathTable
  std::map<Key, std::unique_ptr<Question>> questions_;  ///< without an answer yet; before events_ in destruction
  std::deque<Question*> line_;                          ///< those that have not begun
  std::size_t under_way_ = 0;
  unsigned unanswered_ = 0;
};

/// Somebody who waits for a path.
class PathQuestions::Wait {
 public:
  Wait(std::list<Wait*>& list, std::function<void()> done) : list_(&list), done_(std::move(done)) {
    list.push_back(this);
  }
  ~Wait() {
    if (list_ != nullptr) {
      list_->remove(this);
    }
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  friend class PathQuestions;
  std::list<Wait*>* list_;  ///< null once the answer is there
  std::function<void()> done_;
};

}  // namespace fabric::cpc
