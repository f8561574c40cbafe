// SPDX-License-Identifier: BSD-3-Clause
//
// The network of the model's devices: reliable queue pairs, what becomes of their packets, and of them. A queue pair that is
// destroyed, or in the error state, takes nothing; who sends to it gets an error. What is posted and polled is in
// test/unit/fake_verbs.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cpc/queue_pairs/handshake_slab.h"
#include "test/model/digest.h"
#include "test/model/fault.h"
#include "test/model/numbers.h"
#include "test/unit/fake_verbs.h"

namespace fabric::model {

struct QueuePair {
  enum class State : std::uint8_t { kInit, kReady, kError, kDestroyed };
  test::FakeQueuePair* posted = nullptr;
  std::uint32_t number = 0;
  std::uint32_t remote = 0;  ///< what it is connected to
  std::uint8_t process = 0;
  State state = State::kInit;
  bool is_other_way = false;  ///< it is the process' other device's, and never breaks
  bool is_shared = false;     ///< it receives from a shared queue: a packet that finds nothing there waits
  bool must_listen = false;   ///< on iWARP the side that has accepted the connection must not send first
  unsigned received = 0;      ///< packets
  std::array<std::byte, 2 * cpc::kHandshakeBytes> handshake{};
  // An XRC target, which processes of one node share
  bool is_target = false;
  std::uint64_t domain = 0;
  unsigned handles = 0;
};

class Fabric {
 public:
  /// `is_iwarp`: a queue pair hears of the end of its peer's, and the side that has accepted does not send first.
  Fabric(Fault& fault, std::size_t processes, bool is_iwarp);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// The next verbs call of connection set-up that can fail does.
  bool next_fails = false;
  /// A mistake: whatever is told by another way of what has been taken claims to be final.
  bool claims_to_know = false;
  [[nodiscard]] bool takes_failure() { return std::exchange(next_fails, false); }

  [[nodiscard]] bool is_iwarp() const noexcept { return is_iwarp_; }
  [[nodiscard]] test::FakeDevice& device(std::size_t process) { return *devices_[process]; }
  [[nodiscard]] test::FakeDevice& other_device(std::size_t process) { return *other_devices_[process]; }
  [[nodiscard]] const std::vector<std::unique_ptr<QueuePair>>& all() const noexcept { return all_; }
  [[nodiscard]] QueuePair* find(std::uint32_t number) const;

  // ---- What a progress thread does
  QueuePair& make(std::uint8_t process, bool is_shared) { return make(process, is_shared, false); }
  /// One between the other devices of two processes, connected: of `process`, and of `peer`.
  [[nodiscard]] std::pair<ibv_qp*, ibv_qp*> make_other_way(std::uint8_t process, std::uint8_t peer, bool is_shared);
  /// `slot`: has the slot that the queue pairs of a connection share.
  void post_handshake(QueuePair& pair, QueuePair& slot);
  void connect(QueuePair& pair, std::uint32_t remote, bool must_listen);
  void flush(QueuePair& pair);
  void destroy(QueuePair& pair);
  // XRC
  QueuePair& make_target(std::uint8_t process, std::uint64_t domain, std::uint32_t sender);
  /// Another handle; null: there is no such target.
  [[nodiscard]] QueuePair* take_target(std::uint64_t domain, std::uint32_t number, std::uint32_t sender);
  void drop_target(QueuePair& target);
  [[nodiscard]] unsigned targets_made() const noexcept { return targets_made_; }

  // ---- What happens
  [[nodiscard]] bool can_go(const QueuePair& from) const;
  /// Its oldest packet arrives, or fails, and then all do that it has sent after that.
  /// `twice`: a mistake.
  void go(QueuePair& from, bool twice);
  [[nodiscard]] bool can_break(const QueuePair& pair) const;
  void break_down(QueuePair& pair) { flush(pair); }
  /// It is connected, and may break; with a packet under way that can arrive if `arrives`.
  [[nodiscard]] bool can_fail(const QueuePair& pair, bool arrives) const;
  /// It does. Its oldest packet fails; where there is none, only an event of the device tells: true.
  [[nodiscard]] bool fail(QueuePair& pair, bool arrives);
  /// A process is gone: nobody will take what is sent to it.
  void forget_process(std::size_t process) { gone_[process] = true; }
  /// What is posted on a queue pair that is in the error state comes back. To be called after whatever happens.
  void settle();

  /// Of connections.
  [[nodiscard]] bool has_queue_pairs() const;
  [[nodiscard]] bool has_queue_pairs(std::uint8_t process) const;
  /// X queues: the incarnations that goodbyes on their way name.
  void see(PairNumbers& numbers, std::uint8_t rank, std::uint8_t peer) const;
  void add_to(Digest& digest, const AllNumbers& numbers) const;

 private:
  QueuePair& make(std::uint8_t process, bool is_shared, bool is_other_way);
  [[nodiscard]] test::FakeDevice& device(const QueuePair& pair, std::uint8_t process) {
    return pair.is_other_way ? other_device(process) : device(process);
  }
  void deliver(QueuePair& from, QueuePair& to, bool twice);
  [[nodiscard]] bool is_usable(const QueuePair* pair) const {
    return pair != nullptr && pair->state == QueuePair::State::kReady;
  }
  /// The process that a packet is for: an XRC target receives for several.
  [[nodiscard]] static std::uint8_t reader_of(const QueuePair& to, const test::FakeSend& packet) {
    return to.is_target ? static_cast<std::uint8_t>(packet.remote_srqn) : to.process;
  }

  Fault& fault_;
  const bool is_iwarp_;
  std::array<std::unique_ptr<test::FakeDevice>, kMostProcesses> devices_;
  std::array<std::unique_ptr<test::FakeDevice>, kMostProcesses> other_devices_;
  std::array<bool, kMostProcesses> gone_{};
  std::vector<std::unique_ptr<QueuePair>> all_;
  unsigned targets_made_ = 0;
  std::uint32_t last_number_ = 0;
};

}  // namespace fabric::model
