// SPDX-License-Identifier: BSD-3-Clause
//
// The ledger of a debug build (configure --enable-debug): every credit has an owner, and after every change the sum over the
// owners must be what there was at first. What counts credits otherwise knows only how many are left; the ledger finds who
// lost one, or gave one back twice, when it happens, and not when a queue overruns or a peer waits for ever. In other
// builds it takes neither room nor time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace fabric {

/// Who holds what of a transmit queue. Amounts are bytes of the queue; owners are whatever gives them back: a fragment, a
/// batch of inline messages, an RDMA operation.
class TxLedgerBook {
 public:
  /// Takes memory.
  explicit TxLedgerBook(std::uint64_t total = 0) : total_(total), free_(total) {}

  /// An operation without a completion takes `amount`: it belongs to whoever asks for the next completion.
  void take(std::uint64_t amount);
  /// An operation with a completion takes `amount`; what was taken without one is its owner's too from now on.
  void take(std::uint64_t amount, const void* owner);
  /// The owner gives back everything that one of its operations held: the oldest, since a queue pair completes in order.
  void give_back(std::uint64_t amount, const void* owner);
  /// The counter that the ledger watches says that so much is free.
  void compare(std::uint64_t free);
  /// There is so much now, free and not: no less than what is held.
  void resize(std::uint64_t total) {
    free_ += total - total_;
    total_ = total;
  }

  /// The first thing that was wrong, with all owners; empty if nothing was.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] std::string describe() const;

 private:
  struct Entry {
    const void* owner;
    std::uint64_t amount;
  };
  void balance();
  void complain(const std::string& text);

  std::uint64_t total_;
  std::uint64_t free_;
  std::uint64_t unsignaled_ = 0;
  std::deque<Entry> held_;  ///< oldest first
  std::string problem_;
};

/// Memory that a ledger takes while others must not fail: not by operator new, which a test of what happens without memory
/// refuses.
template <class T>
struct LedgerMemory {
  using value_type = T;
  LedgerMemory() = default;
  template <class Other>
  LedgerMemory(const LedgerMemory<Other>& /*other*/) noexcept {}  // NOLINT: allocators convert
  [[nodiscard]] T* allocate(std::size_t count) noexcept {
    void* const memory = std::malloc(count * sizeof(T));
    if (memory == nullptr) {
      std::abort();
    }
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t /*count*/) noexcept { std::free(memory); }
  bool operator==(const LedgerMemory& /*other*/) const = default;
};

/// Which buffers hold what of a receive queue. Amounts are bytes of the queue. Receives complete in any order where links share
/// a queue, each once.
class RxLedgerBook {
 public:
  /// Takes memory.
  explicit RxLedgerBook(std::uint64_t total = 0) : total_(total), free_(total) {}

  /// A buffer that holds nothing takes `amount`.
  void take(std::uint64_t amount, const void* buffer);
  /// A buffer gives back what it took.
  void give_back(std::uint64_t amount, const void* buffer);
  /// The counters that the ledger watches say that so much is free, and that so many receives are posted.
  void compare(std::uint64_t free, std::uint64_t posted);

  /// The first thing that was wrong, with what is free; empty if nothing was.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] std::string describe() const;

 private:
  void complain(const std::string& text);

  std::uint64_t total_;
  std::uint64_t free_;
  using Held = std::pair<const void* const, std::uint64_t>;
  std::unordered_map<const void*, std::uint64_t, std::hash<const void*>, std::equal_to<>, LedgerMemory<Held>> held_;
  std::string problem_;
};

/// Who holds the receives of one kind on one side of a P queue's connection, and the credits for the peer's. A receive is
/// the peer's (it may send a message for it, or has), owed (posted again, the peer does not know), or consumed (not posted
/// again). A credit is ours, or spent (on a message for which nothing has come back).
class WindowLedgerBook {
 public:
  WindowLedgerBook() = default;
  WindowLedgerBook(std::uint32_t receives, std::uint32_t credits) noexcept
      : receives_(receives), peers_(receives), credits_(credits) {}

  void granted(std::uint32_t count) noexcept { peers_ += count; }   ///< the peer is told of them
  void arrived(std::uint32_t count) noexcept { peers_ -= count; }   ///< a message took them
  void spent(std::uint32_t count) noexcept { spent_ += count; }     ///< a message of ours took them
  void returned(std::uint32_t count) noexcept { spent_ -= count; }  ///< the peer gave them back, or nothing was sent
  void grow(std::uint32_t count) noexcept { receives_ += count; }   ///< there are more receives, which are consumed

  /// What the window counts. Empty if every receive and every credit has one owner.
  [[nodiscard]] std::string check(std::uint32_t owed, std::uint32_t consumed, std::uint32_t ours) const;

 private:
  std::uint32_t receives_ = 0;
  std::uint32_t peers_ = 0;
  std::uint32_t credits_ = 0;
  std::uint32_t spent_ = 0;
};

/// Prints what is wrong, and ends the process.
[[noreturn]] void ledger_is_wrong(const char* which, const std::string& problem) noexcept;

/// In place of a ledger in other builds: takes whatever a ledger takes, and does nothing.
struct NoLedger {
  constexpr explicit NoLedger(auto...) noexcept {}
  constexpr void take(auto...) const noexcept {}
  constexpr void give_back(auto...) const noexcept {}
  constexpr void granted(auto...) const noexcept {}
  constexpr void arrived(auto...) const noexcept {}
  constexpr void spent(auto...) const noexcept {}
  constexpr void returned(auto...) const noexcept {}
  constexpr void grow(auto...) const noexcept {}
  constexpr void compare(auto...) const noexcept {}
  constexpr void resize(auto...) const noexcept {}
  [[nodiscard]] static std::string problem() { return {}; }
  [[nodiscard]] static std::string check(auto...) { return {}; }
};

#ifdef FABRIC_LEDGER
inline constexpr bool kHasLedger = true;
using TxLedger = TxLedgerBook;
using RxLedger = RxLedgerBook;
using WindowLedger = WindowLedgerBook;
#else
inline constexpr bool kHasLedger = false;
using TxLedger = NoLedger;
using RxLedger = NoLedger;
using WindowLedger = NoLedger;
#endif

}  // namespace fabric
