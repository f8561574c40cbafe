// SPDX-License-Identifier: BSD-3-Clause
//
// The locks of the main threads: one for each transmit context, and which of them a thread works under. A context has
// its own module, endpoints, queue pairs and completion queues on every port, so that threads of MPI_THREAD_MULTIPLE
// that work in different ones do not wait for each other.
//
// The rule that keeps threads from waiting for each other in a circle: a thread that holds the lock of a context (it is
// in a callback of the upper layer) goes on in that context, and waits for the lock of another one only if that has a
// lower number than all that it holds. What is rare (connections, endpoints that go) holds all of them.
#pragma once

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

namespace fabric {

/// Most transmit contexts.
inline constexpr unsigned kMostContexts = 64;

/// With one context it costs what one lock does; without threads, nothing. One object in a process.
class ContextLocks {
  static constexpr unsigned kNone = ~0U;
  /// What a thread has.
  struct Held {
    unsigned innermost = kNone;
    unsigned lowest = kNone;
  };

 public:
  /// Holds the lock of a context; or nothing, if there are no threads. Belongs to the thread that made it.
  class Guard {
   public:
    Guard() = default;
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)), before_(other.before_) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (mutex_ != nullptr) {
        held_ = before_;
        mutex_->unlock();
      }
    }

   private:
    friend class ContextLocks;
    Guard(std::recursive_mutex& locked, unsigned context) noexcept
        : mutex_(&locked), before_(std::exchange(held_, Held{context, std::min(context, held_.lowest)})) {}
    std::recursive_mutex* mutex_ = nullptr;
    Held before_;
  };

  /// Holds the locks of all contexts.
  class All {
   public:
    All() = default;
    All(All&& other) noexcept : locks_(std::exchange(other.locks_, nullptr)), before_(other.before_) {}
    All& operator=(All&&) = delete;
    ~All();

   private:
    friend class ContextLocks;
    explicit All(ContextLocks& locked) noexcept : locks_(&locked), before_(std::exchange(held_, Held{0, 0})) {}
    ContextLocks* locks_ = nullptr;
    Held before_;
  };

  /// `threaded`: true as soon as more than one thread calls.
  ContextLocks(unsigned contexts, const bool& threaded) noexcept : contexts_(contexts), threaded_(threaded) {}
  ContextLocks(const ContextLocks&) = delete;
  ContextLocks& operator=(const ContextLocks&) = delete;

  [[nodiscard]] unsigned contexts() const noexcept { return contexts_; }

  /// The context that the calling thread works in: that whose lock it holds, or its own. Threads get theirs in turn, as
  /// they come.
  [[nodiscard]] unsigned current() const noexcept {
    if (contexts_ == 1 || !threaded_) [[likely]] {
      return 0;
    }
    return held_.innermost != kNone ? held_.innermost : own();
  }

  /// Waits for the lock of a context: current(), one below all that the thread holds, or, if it holds none, any.
  [[nodiscard]] Guard lock(unsigned context) noexcept { return threaded_ ? wait_for(context) : Guard(); }
  /// The lock of any context; nothing if another thread has it and to wait for it is against the rule.
  [[nodiscard]] std::optional<Guard> lock_if_allowed(unsigned context) noexcept {
    return context <= held_.lowest ? lock(context) : try_lock(context);  // kNone is above all
  }
  /// Nothing if another thread has it.
  [[nodiscard]] std::optional<Guard> try_lock(unsigned context) noexcept {
    return threaded_ ? take_if_free(context) : Guard();
  }

  /// The thread holds a lock, but not all.
  [[nodiscard]] bool holds_some() const noexcept {
    return threaded_ && held_.lowest != kNone && held_all_ == 0 && contexts_ > 1;
  }
  /// Waits for all locks. The thread must not hold some.
  [[nodiscard]] All lock_all() noexcept;

 private:
  [[nodiscard]] unsigned own() const noexcept;
  [[nodiscard]] Guard wait_for(unsigned context) noexcept;
  [[nodiscard]] std::optional<Guard> take_if_free(unsigned context) noexcept;

  struct alignas(64) Lock {  // a cache line each
    std::recursive_mutex mutex;
  };
  const unsigned contexts_;
  const bool& threaded_;
  std::array<Lock, kMostContexts> locks_;
  static thread_local Held held_;
  static thread_local unsigned held_all_;  ///< how often
};

}  // namespace fabric
