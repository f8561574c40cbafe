// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pairs that only record what is done to them, and XRC targets that live as long as somebody has a handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cpc/queue_pairs/queue_pairs.h"
#include "test/unit/check_main.h"

namespace fabric::test {

/// Counts over all fake queue pairs of the program.
struct FakeCounts {
  std::atomic<int> made = 0;
  std::atomic<int> refused = 0;  ///< since a device is full
  std::atomic<int> destroyed = 0;
  std::atomic<int> flushed = 0;
  std::atomic<int> connected = 0;
  std::atomic<std::uint32_t> next_number = 1;
  std::atomic<int> make_failures = 0;     ///< to come
  std::atomic<int> connect_failures = 0;  ///< to come
};
inline FakeCounts fake_counts;

/// True, and there is one failure less to come.
inline bool takes_one(std::atomic<int>& failures) {
  int left = failures;
  while (left > 0 && !failures.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

/// What each fake connection is connected to, by the number of its first queue pair.
struct FakeLinks {
  std::mutex mutex;
  std::map<std::uint32_t, std::vector<cpc::QueuePairEnd>> ends;
};
inline FakeLinks fake_links;

inline std::vector<cpc::QueuePairEnd> linked_to(const cpc::QueuePairEnd& first) {
  const std::lock_guard lock(fake_links.mutex);
  return fake_links.ends[first.qpn];
}

class FakeQueuePairs final : public cpc::QueuePairs {
 public:
  FakeQueuePairs(std::size_t count, bool connect_fails, cpc::QueuePairBudget* budget = nullptr)
      : connect_fails_(connect_fails), budget_(budget) {
    if (budget_ != nullptr) {
      budget_->take(static_cast<std::int64_t>(count));
      budget_->made();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t number = fake_counts.next_number++;
      ends_.push_back({number & 0xffffff, (number * 7919U) & 0xffffff});
    }
    ++fake_counts.made;
  }
  ~FakeQueuePairs() override {
    ++fake_counts.destroyed;
    if (budget_ != nullptr) {
      budget_->give_back(static_cast<std::int64_t>(ends_.size()));
    }
  }

  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return std::vector<ibv_qp*>(ends_.size()); }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    ck_assert_msg(!connected_ && ends.size() == ends_.size(), "connected twice, or to a wrong number of ends");
    connected_ = true;
    ++fake_counts.connected;
    const std::lock_guard lock(fake_links.mutex);
    fake_links.ends[ends_[0].qpn] = ends;
    return connect_fails_ || takes_one(fake_counts.connect_failures) ? Status(failure("the fake device refuses RTR"))
                                                                     : Status();
  }
  void flush() noexcept override { ++fake_counts.flushed; }

 private:
  std::vector<cpc::QueuePairEnd> ends_;
  bool connect_fails_;
  cpc::QueuePairBudget* const budget_;
  bool connected_ = false;
};

/// The targets of all nodes; their progress threads meet here.
class FakeTargets {
 public:
  struct Target {
    std::uint64_t domain = 0;
    cpc::QueuePairEnd sender;  ///< whose messages it receives
    int handles = 0;
    bool connected = false;
  };

  std::uint32_t make(std::uint64_t domain, const cpc::QueuePairEnd& sender) {
    const std::lock_guard guard(mutex_);
    const std::uint32_t number = fake_counts.next_number++ & 0xffffff;
    targets_[number] = {domain, sender, 1, false};
    ++made_;
    return number;
  }
  /// False: it is gone.
  bool take(std::uint64_t domain, std::uint32_t number, const cpc::QueuePairEnd& sender) {
    const std::lock_guard guard(mutex_);
    const auto found = targets_.find(number);
    if (found == targets_.end() || found->second.domain != domain) {
      return false;
    }
    ck_assert_msg(found->second.connected && found->second.sender == sender, "a target of another sender is taken");
    ++found->second.handles;
    return true;
  }
  void connect(std::uint32_t number) {
    const std::lock_guard guard(mutex_);
    ck_assert_msg(!targets_.at(number).connected, "a target is connected twice");
    targets_.at(number).connected = true;
  }
  void drop(std::uint32_t number) {
    const std::lock_guard guard(mutex_);
    if (--targets_.at(number).handles == 0) {
      targets_.erase(number);
    }
  }
  [[nodiscard]] std::size_t alive() {
    const std::lock_guard guard(mutex_);
    return targets_.size();
  }
  [[nodiscard]] int made() {
    const std::lock_guard guard(mutex_);
    return made_;
  }

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, Target> targets_;
  int made_ = 0;
};
inline FakeTargets fake_targets;

struct FakeXrcOptions {
  std::uint32_t rank = 0;
  std::size_t queues = 0;
  std::uint64_t domain = 0;
  bool make_fails = false;
  bool connect_fails = false;
};

/// What has been made, over all fake senders.
struct FakeSenderCounts {
  std::atomic<int> made = 0;
  std::atomic<int> refused = 0;  ///< since a device is full
  std::atomic<int> destroyed = 0;
  std::atomic<int> connected = 0;
  std::atomic<int> flushed = 0;
  std::atomic<int> to_fail = 0;      ///< connects that will fail
  std::atomic<bool> broken = false;  ///< all that are connected have broken down
};
inline FakeSenderCounts fake_senders;

class FakeSender final : public cpc::QueuePairs {
 public:
  explicit FakeSender(std::uint32_t number) : ends_{{number & 0xffffff, (number * 7919U) & 0xffffff}} {
    ++fake_senders.made;
  }
  ~FakeSender() override { ++fake_senders.destroyed; }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {nullptr}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    ck_assert_msg(!connected_ && ends.size() == 1, "a sender is connected twice, or to several targets");
    int left = fake_senders.to_fail;
    while (left > 0 && !fake_senders.to_fail.compare_exchange_weak(left, left - 1)) {
    }
    if (left > 0) {
      return failure("the fake device refuses RTR");
    }
    connected_ = true;
    ++fake_senders.connected;
    return {};
  }
  void flush() noexcept override { ++fake_senders.flushed; }
  [[nodiscard]] bool are_broken() const noexcept override { return fake_senders.broken; }

 private:
  std::vector<cpc::QueuePairEnd> ends_;
  bool connected_ = false;
};

class FakeTarget final : public cpc::QueuePairs {
 public:
  FakeTarget(const FakeXrcOptions& options, std::uint32_t number, std::uint32_t psn, bool taken)
      : options_(options), ends_{{number, psn}}, taken_(taken) {}
  ~FakeTarget() override { fake_targets.drop(ends_[0].qpn); }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return {nullptr}; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>&) override {
    if (!taken_) {
      fake_targets.connect(ends_[0].qpn);
    }
    return options_.connect_fails ? Status(failure("the fake device refuses RTR")) : Status();
  }
  void flush() noexcept override {}
  [[nodiscard]] cpc::XrcNumbers xrc_numbers() const override {
    cpc::XrcNumbers numbers;
    for (std::size_t i = 0; i < options_.queues; ++i) {
      numbers.srqs.push_back(options_.rank * 256 + static_cast<std::uint32_t>(i));
    }
    return numbers;
  }

 private:
  FakeXrcOptions options_;
  std::vector<cpc::QueuePairEnd> ends_;
  bool taken_;
};

inline cpc::XrcMaker fake_xrc_maker(const FakeXrcOptions& options) {
  cpc::XrcMaker maker;
  maker.sender = [](const cpc::PortContext&) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    return std::make_unique<FakeSender>(fake_counts.next_number++);
  };
  maker.target = [options](const cpc::PortContext&, const cpc::QueuePairEnd& sender,
                           std::uint32_t taken) -> Result<std::unique_ptr<cpc::QueuePairs>> {
    if (taken == 0 && options.make_fails) {
      return failure("the fake device has no target left");
    }
    if (taken != 0 && !fake_targets.take(options.domain, taken, sender)) {
      return failure("there is no such target");
    }
    const std::uint32_t number = taken != 0 ? taken : fake_targets.make(options.domain, sender);
    return std::make_unique<FakeTarget>(options, number, sender.psn, taken != 0);
  };
  return maker;
}

}  // namespace fabric::test
