// SPDX-License-Identifier: BSD-3-Clause
//
// A small world: some processes with the product's connection code, their network and their device. It says what may
// happen next, and lets it happen.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "test/model/choice.h"
#include "test/model/process.h"

namespace fabric::model {

class World {
 public:
  /// `options` outlive it. `loop` is never run: timers are over when the checker says so.
  World(const Options& options, event_base* loop);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// What may happen next. Finds fault with a world in which nothing will, if it should not be left so.
  [[nodiscard]] const std::vector<Choice>& choices();
  void take(const Choice& choice);
  /// Every process ends. Finds fault with what is left then.
  void end();
  [[nodiscard]] const std::string& fault() const noexcept { return fault_.text(); }
  /// Nothing happens by itself any more.
  [[nodiscard]] bool is_quiet() const noexcept { return due_ == 0; }
  [[nodiscard]] Fingerprint fingerprint() const;

  /// "process 1 gets REQUEST on channel 1", for what is about to happen.
  [[nodiscard]] std::string name(const Choice& choice) const;
  /// "[RequestSent] [ReplySent]"
  [[nodiscard]] std::string states() const;

 private:
  [[nodiscard]] Process* at(std::uint8_t rank) const { return processes_[rank].get(); }
  void connect_other_way(std::uint8_t rank, std::uint8_t peer);
  void offer(Choice choice, bool is_due = true);
  void offer_application(std::uint8_t rank);
  void offer_threads(std::uint8_t rank);
  void offer_network();
  void offer_packets();
  void offer_late_timers();
  void check_waits(std::size_t others);
  void end_process(std::uint8_t rank, bool with_its_host);
  void check_told(std::uint8_t rank, std::uint8_t peer);
  void check_quiet();
  void check_quiet(std::uint8_t rank, std::uint8_t peer);
  /// By the application of `rank`, until now.
  [[nodiscard]] int closes(std::uint8_t rank, std::uint8_t peer) const {
    return options_.plans[rank].closes[peer] - left_[rank].closes[peer];
  }
  [[nodiscard]] bool is_at_rest(std::uint8_t rank, std::uint8_t peer) const;
  [[nodiscard]] bool has_done_all(std::uint8_t rank) const;
  [[nodiscard]] bool is_excused(std::uint8_t rank, std::uint8_t peer) const;
  /// Main threads poll what has completed.
  void settle();

  const Options& options_;
  event_base* const loop_;
  Fault fault_;
  Fabric fabric_;
  Ledger ledger_;
  Network network_;
  std::array<std::unique_ptr<Process>, kMostProcesses> processes_;  ///< null: it is gone
  std::array<Plan, kMostProcesses> left_;                           ///< what may still happen
  std::array<bool, kMostProcesses> said_goodbye_{};                 ///< of those that are gone
  std::uint8_t losses_;
  std::uint8_t breaks_;
  std::uint8_t failures_;
  std::uint8_t yields_;
  std::vector<Choice> choices_;
  std::size_t due_ = 0;
};

}  // namespace fabric::model
