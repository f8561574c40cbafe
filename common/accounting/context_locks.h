// SPDX-License-Identifier: BSD-3-Clause
//
// The locks of the main threads: one for each context, and which of them a thread works under. A context has its own
// module, endpoints, queue pairs and completion queues on every port, so that threads of MPI_THREAD_MULTIPLE that work in
// different ones do not wait for each other.
//
// The rule that keeps threads from waiting for each other in a circle: a thread that holds the lock of a context (it is
// in a callback of the upper layer) goes on in that context, and waits for the lock of another one only if that has a
// lower number than all that it holds. What is rare (connections, endpoints that go) holds all of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdint>
#include <mutex>
#include <utility>

namespace fabric {

/// Most contexts.
inline constexpr unsigned kMostContexts = 64;

/// How many of the contexts threads send by and receive from. Each has the first ones.
struct ContextRoles {
  unsigned transmit = 1;  ///< 1 to kMostContexts
  unsigned receive = 1;   ///< the same
  [[nodiscard]] unsigned count() const noexcept { return std::max(transmit, receive); }
};

/// With one context it costs what one lock does; without threads, nothing. One object in a process.
class ContextLocks {
  static constexpr unsigned kNone = ~0U;
  using Set = std::uint64_t;  // a bit for each context
  static_assert(kMostContexts <= 64);
  /// What a thread has.
  struct Held {
    Set contexts = 0;
    unsigned innermost = kNone;
    [[nodiscard]] bool has(unsigned context) const noexcept { return (contexts >> context & 1) != 0; }
    /// To wait for the lock of that one keeps to the rule.
    [[nodiscard]] bool may_wait_for(unsigned context) const noexcept {
      return has(context) || context < static_cast<unsigned>(std::countr_zero(contexts));
    }
  };
  struct Thread {
    Held held;
    unsigned number = kNone;  ///< in the order in which they come
    unsigned transmit = kNone;
    unsigned receive = kNone;
  };

 public:
  /// Holds the lock of a context; or, if there are no threads, needs none. False if it is nothing of both. Belongs to the
  /// thread that made it.
  class [[nodiscard]] Guard {
   public:
    Guard() = default;  ///< false
    Guard(Guard&& other) noexcept
        : state_(std::exchange(other.state_, State::kNothing)),
          innermost_before_(other.innermost_before_),
          mutex_(other.mutex_),
          held_before_(other.held_before_) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (state_ == State::kHeld) {
        thread_.held.contexts = held_before_;
        thread_.held.innermost = innermost_before_;
        if (mutex_ != nullptr) {
          mutex_->unlock();
        }
      }
    }
    explicit operator bool() const noexcept { return state_ != State::kNothing; }

   private:
    friend class ContextLocks;
    enum class State : std::uint8_t { kNothing, kNotNeeded, kHeld };
    explicit Guard(State state) noexcept : state_(state) {}
    /// `locked`: null if the thread has held it before.
    Guard(std::mutex* locked, unsigned context) noexcept
        : state_(State::kHeld),
          innermost_before_(thread_.held.innermost),
          mutex_(locked),
          held_before_(thread_.held.contexts) {
      thread_.held.contexts |= Set{1} << context;
      thread_.held.innermost = context;
    }
    // What was held before, not as one piece: processors wait when they read what has just been written in two.
    State state_ = State::kNothing;
    unsigned innermost_before_ = kNone;
    std::mutex* mutex_ = nullptr;
    Set held_before_ = 0;
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
    explicit All(ContextLocks& locked) noexcept : locks_(&locked), before_(thread_.held) {}
    ContextLocks* locks_ = nullptr;
    Held before_;
  };

  /// `threaded`: true as soon as more than one thread calls.
  ContextLocks(const ContextRoles& roles, const bool& threaded) noexcept
      : roles_(roles), contexts_(roles.count()), threaded_(threaded) {}
  /// So many that are both.
  ContextLocks(unsigned contexts, const bool& threaded) noexcept : ContextLocks({contexts, contexts}, threaded) {}
  ContextLocks(const ContextLocks&) = delete;
  ContextLocks& operator=(const ContextLocks&) = delete;

  [[nodiscard]] unsigned contexts() const noexcept { return contexts_; }
  /// False while one thread calls.
  [[nodiscard]] bool are_needed() const noexcept { return threaded_; }
  [[nodiscard]] const ContextRoles& roles() const noexcept { return roles_; }

  /// The context that the calling thread works in: that whose lock it holds, or its own transmit context. Threads get
  /// theirs in turn, as they come.
  [[nodiscard]] unsigned current() const noexcept {
    if (!threaded_) {
      return 0;
    }
    const Thread& thread = thread_;
    if (thread.held.innermost != kNone) {
      return thread.held.innermost;
    }
    return thread.transmit < roles_.transmit ? thread.transmit : choose().transmit;
  }
  /// The receive context that the calling thread is at home in: it looks there first. Given in turn too.
  [[nodiscard]] unsigned home() const noexcept {
    if (!threaded_) {
      return 0;
    }
    return thread_.receive < roles_.receive ? thread_.receive : choose().receive;
  }

  /// Waits for the lock of a context: current(), one below all that the thread holds, or, if it holds none, any.
  Guard lock(unsigned context) noexcept {
    if (!threaded_) {
      return Guard(Guard::State::kNotNeeded);
    }
    assert(context < contexts_ && thread_.held.may_wait_for(context));
    if (thread_.held.contexts != 0 && thread_.held.has(context)) {
      return {nullptr, context};
    }
    locks_[context].mutex.lock();
    return {&locks_[context].mutex, context};
  }
  /// What current() is where there is least to look at: the calling thread's transmit context, if it holds no lock and has
  /// been given one, or 0 without threads; else a number above all contexts. lock_free() has its lock.
  [[nodiscard]] unsigned free_to_use() const noexcept {
    if (!threaded_) {
      return 0;
    }
    const Thread& thread = thread_;
    return thread.held.contexts == 0 && thread.transmit < roles_.transmit ? thread.transmit : kNone;
  }
  Guard lock_free(unsigned context) noexcept {
    if (!threaded_) {
      return Guard(Guard::State::kNotNeeded);
    }
    locks_[context].mutex.lock();
    return {&locks_[context].mutex, context};
  }
  /// The lock of any context; nothing if another thread has it and to wait for it is against the rule.
  Guard lock_if_allowed(unsigned context) noexcept {
    return thread_.held.contexts == 0 || thread_.held.may_wait_for(context) ? lock(context) : try_lock(context);
  }
  /// Nothing if another thread has it.
  Guard try_lock(unsigned context) noexcept {
    if (!threaded_) {
      return Guard(Guard::State::kNotNeeded);
    }
    if (thread_.held.has(context)) {
      return {nullptr, context};
    }
    return locks_[context].mutex.try_lock() ? Guard(&locks_[context].mutex, context) : Guard();
  }

  /// The thread holds a lock, but not all.
  [[nodiscard]] bool holds_some() const noexcept {
    return threaded_ && thread_.held.contexts != 0 && thread_.held.contexts != every();
  }
  /// The thread holds some or all, or there are no threads.
  [[nodiscard]] bool holds_any() const noexcept { return !threaded_ || thread_.held.contexts != 0; }
  /// Waits for all locks. The thread must not hold some.
  [[nodiscard]] All lock_all() noexcept;
  /// Something waits for a thread that has all locks, or (false) it has been done. For whoever holds one.
  void want_all(bool wanted) noexcept { all_wanted_.store(wanted, std::memory_order_relaxed); }
  [[nodiscard]] bool are_all_wanted() const noexcept { return all_wanted_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] Set every() const noexcept { return ~Set{0} >> (64 - contexts_); }
  [[nodiscard]] const Thread& choose() const noexcept;

  struct alignas(64) Lock {  // a cache line each
    std::mutex mutex;
  };
  const ContextRoles roles_;
  const unsigned contexts_;
  const bool& threaded_;
  std::atomic<bool> all_wanted_ = false;
  std::array<Lock, kMostContexts> locks_;
  // Asked for several times with every message. Few bytes, so that they can lie where every thread finds them by one
  // addition, though the component is loaded at run time; the usual way is a call of the dynamic linker.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Thread thread_;
};

}  // namespace fabric
