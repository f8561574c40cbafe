// SPDX-License-Identifier: BSD-3-Clause
//
// The device of the model: reliable queue pairs of all processes, and the packets between them. A queue pair that is
// destroyed, or in the error state, takes nothing; who sends to it gets an error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpc/queue_pairs/queue_pairs.h"
#include "test/model/digest.h"
#include "test/model/fault.h"

namespace fabric::model {

inline constexpr std::size_t kMostProcesses = 4;

struct Packet {
  enum class Kind : std::uint8_t { kData, kClearToSend };
  Kind kind = Kind::kData;
  std::uint8_t serial = 0;  ///< of a message, counted by the process that sends it
  std::uint8_t to = 0;      ///< to an XRC target: the process whose shared receive queue it is for
};

/// What arrives on it is polled at once by the main thread of its process.
struct QueuePair {
  enum class State : std::uint8_t { kInit, kReady, kError, kDestroyed };
  struct Incoming {
    std::uint32_t from = 0;
    Packet packet;
  };
  ibv_qp verbs{};  ///< handles point here
  std::uint32_t number = 0;
  std::uint32_t remote = 0;  ///< what it is connected to
  std::uint8_t process = 0;
  State state = State::kInit;
  bool is_shared = false;  ///< an S queue: a packet that finds no receive waits
  bool has_handshake = false;
  bool has_receives = false;
  bool must_listen = false;  ///< on iWARP the side that has accepted the connection must not send first
  // An XRC target, which processes of one node share
  bool is_target = false;
  std::uint64_t domain = 0;
  unsigned handles = 0;
  std::deque<Incoming> incoming;
};

/// Hears what a process polls.
class Completions {
 public:
  virtual void on_packet(std::uint32_t queue_pair, const Packet& packet) = 0;
  /// A send has failed, and its queue pair with it.
  virtual void on_send_failed(std::uint32_t queue_pair) = 0;

 protected:
  ~Completions() = default;
};

class Fabric {
 public:
  explicit Fabric(Fault& fault) : fault_(fault) {}
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// The next verbs call that can fail does.
  bool next_fails = false;
  [[nodiscard]] bool takes_failure() { return std::exchange(next_fails, false); }

  QueuePair& make(std::uint8_t process, bool is_shared);
  [[nodiscard]] QueuePair* find(std::uint32_t number) const;
  [[nodiscard]] const std::vector<std::unique_ptr<QueuePair>>& all() const noexcept { return all_; }

  void connect(std::uint32_t number, std::uint32_t remote, bool must_listen);
  void flush(std::uint32_t number);
  void destroy(std::uint32_t number);
  /// The main thread's: every receive is posted.
  void post_receives(std::uint32_t number);
  void send(std::uint32_t number, const Packet& packet);

  [[nodiscard]] bool can_arrive(const QueuePair& to) const;
  [[nodiscard]] bool can_be_lost(const QueuePair& to) const;
  /// The packet arrives, or the sender learns that it does not, and neither do those that it has sent after it.
  void arrive(QueuePair& to, const std::vector<Completions*>& processes);
  void lose(QueuePair& to, const std::vector<Completions*>& processes);

  // XRC
  /// Another handle; null: there is no such target.
  [[nodiscard]] QueuePair* take_target(std::uint64_t domain, std::uint32_t number, std::uint32_t sender);
  void drop_target(std::uint32_t number);
  void fill_shared_queues(std::uint8_t process) { filled_.insert(process); }
  [[nodiscard]] unsigned targets_made() const noexcept { return targets_made_; }
  QueuePair& make_target(std::uint64_t domain, std::uint32_t sender);

  [[nodiscard]] bool has_queue_pairs(std::uint8_t process) const;
  /// Something that it has sent is under way.
  [[nodiscard]] bool has_sent(std::uint32_t number) const {
    return std::any_of(all_.begin(), all_.end(), [number](const auto& to) {
      return std::any_of(to->incoming.begin(), to->incoming.end(),
                         [number](const auto& one) { return one.from == number; });
    });
  }
  void add_to(Digest& digest) const;

 private:
  [[nodiscard]] bool is_usable(const QueuePair* queue_pair) const {
    return queue_pair != nullptr && queue_pair->state == QueuePair::State::kReady;
  }
  void drop_from(QueuePair& to, std::uint32_t sender) const;
  void forget();

  Fault& fault_;
  std::vector<std::unique_ptr<QueuePair>> all_;
  std::set<std::uint8_t> filled_;
  unsigned targets_made_ = 0;
  std::uint32_t last_number_ = 0;
};

inline QueuePair& Fabric::make(std::uint8_t process, bool is_shared) {
  auto made = std::make_unique<QueuePair>();
  made->number = ++last_number_;
  made->verbs.qp_num = made->number;
  made->process = process;
  made->is_shared = is_shared;
  all_.push_back(std::move(made));
  return *all_.back();
}

inline QueuePair* Fabric::find(std::uint32_t number) const {
  for (const auto& one : all_) {
    if (one->number == number) {
      return one.get();
    }
  }
  return nullptr;
}

inline void Fabric::connect(std::uint32_t number, std::uint32_t remote, bool must_listen) {
  QueuePair* const one = find(number);
  if (one == nullptr || one->state != QueuePair::State::kInit) {
    fault_.add("a queue pair is connected twice, or after it was destroyed");
    return;
  }
  one->state = QueuePair::State::kReady;
  one->remote = remote;
  one->must_listen = must_listen;
}

inline void Fabric::flush(std::uint32_t number) {
  if (QueuePair* const one = find(number); one != nullptr) {
    one->state = QueuePair::State::kError;
  }
}

inline void Fabric::destroy(std::uint32_t number) {
  QueuePair* const one = find(number);
  if (one == nullptr || one->state == QueuePair::State::kDestroyed) {
    fault_.add("a queue pair is destroyed twice");
    return;
  }
  one->state = QueuePair::State::kDestroyed;
  forget();
}

inline void Fabric::post_receives(std::uint32_t number) {
  QueuePair* const one = find(number);
  if (one == nullptr || one->state == QueuePair::State::kDestroyed) {
    fault_.add("receives are posted on a queue pair that is destroyed");
    return;
  }
  if (one->has_receives) {
    fault_.add("receives are posted twice");
  }
  one->has_receives = true;
}

inline void Fabric::send(std::uint32_t number, const Packet& packet) {
  QueuePair* const one = find(number);
  if (one == nullptr || one->state == QueuePair::State::kDestroyed) {
    fault_.add("a message is posted on a queue pair that is destroyed");
    return;
  }
  if (one->state == QueuePair::State::kInit) {
    fault_.add("a message is posted on a queue pair that is not connected");
    return;
  }
  if (one->must_listen) {
    fault_.add("the side that has accepted an iWARP connection sends first");
  }
  if (QueuePair* const to = find(one->remote); to != nullptr) {
    to->incoming.push_back({number, packet});
  } else {
    // The peer is long gone: the failure comes when the device has tried often enough.
    auto gone = std::make_unique<QueuePair>();
    gone->number = one->remote;
    gone->state = QueuePair::State::kDestroyed;
    gone->incoming.push_back({number, packet});
    all_.push_back(std::move(gone));
  }
}

inline bool Fabric::can_arrive(const QueuePair& to) const {
  if (to.incoming.empty() || to.state == QueuePair::State::kInit) {
    return false;
  }
  const QueuePair::Incoming& next = to.incoming.front();
  if (to.is_target) {
    return to.state != QueuePair::State::kReady || to.remote != next.from || filled_.contains(next.packet.to);
  }
  const bool waits = to.state == QueuePair::State::kReady && to.remote == next.from && to.is_shared && !to.has_receives;
  return !waits;
}

inline bool Fabric::can_be_lost(const QueuePair& to) const {
  return !to.incoming.empty() && !is_usable(find(to.incoming.front().from));
}

inline void Fabric::arrive(QueuePair& to, const std::vector<Completions*>& processes) {
  const QueuePair::Incoming next = to.incoming.front();
  Completions* const reader = processes[to.is_target ? next.packet.to : to.process];
  if (to.state != QueuePair::State::kReady || to.remote != next.from || reader == nullptr) {
    lose(to, processes);
    return;
  }
  to.incoming.pop_front();
  to.must_listen = false;
  const bool takes_handshake = next.packet.kind == Packet::Kind::kClearToSend && !to.is_shared;
  if (!to.is_target && !(takes_handshake ? to.has_handshake : to.has_receives)) {
    fault_.add("a message is sent before the peer has posted a receive for it");
    return;
  }
  reader->on_packet(to.number, next.packet);
}

inline void Fabric::lose(QueuePair& to, const std::vector<Completions*>& processes) {
  const std::uint32_t sender = to.incoming.front().from;
  drop_from(to, sender);
  QueuePair* const from = find(sender);
  if (from != nullptr && from->state != QueuePair::State::kDestroyed) {
    from->state = QueuePair::State::kError;
    if (processes[from->process] != nullptr) {
      processes[from->process]->on_send_failed(sender);
    }
  }
  forget();
}

inline void Fabric::drop_from(QueuePair& to, std::uint32_t sender) const {
  std::erase_if(to.incoming, [sender](const QueuePair::Incoming& one) { return one.from == sender; });
}

// ---- XRC

inline QueuePair& Fabric::make_target(std::uint64_t domain, std::uint32_t sender) {
  ++targets_made_;
  QueuePair& made = make(kMostProcesses, true);
  made.is_target = true;
  made.domain = domain;
  made.remote = sender;
  made.handles = 1;
  return made;
}

inline QueuePair* Fabric::take_target(std::uint64_t domain, std::uint32_t number, std::uint32_t sender) {
  QueuePair* const target = find(number);
  if (target == nullptr || target->handles == 0 || target->domain != domain) {
    return nullptr;
  }
  if (target->state != QueuePair::State::kReady || target->remote != sender) {
    fault_.add("a target is taken that is another sender's, or is not connected");
  }
  ++target->handles;
  return target;
}

inline void Fabric::drop_target(std::uint32_t number) {
  if (--find(number)->handles == 0) {
    destroy(number);
  }
}

/// What is destroyed stays only as the goal of what is under way.
inline void Fabric::forget() {
  std::erase_if(all_,
                [](const auto& one) { return one->state == QueuePair::State::kDestroyed && one->incoming.empty(); });
}

inline bool Fabric::has_queue_pairs(std::uint8_t process) const {
  return std::any_of(all_.begin(), all_.end(), [process](const auto& one) {
    return one->process == process && one->state != QueuePair::State::kDestroyed;
  });
}

inline void Fabric::add_to(Digest& digest) const {
  digest.add(next_fails ? 1 : 0);
  for (const auto& one : all_) {
    digest.add_name(one->number);
    digest.add_name(one->remote);
    digest.add(one->process | static_cast<unsigned>(one->state) << 4U | (one->has_handshake ? 0x100U : 0U) |
               (one->has_receives ? 0x200U : 0U) | one->handles << 12U | (one->must_listen ? 0x400U : 0U));
    for (const QueuePair::Incoming& incoming : one->incoming) {
      digest.add_name(incoming.from);
      digest.add(static_cast<unsigned>(incoming.packet.kind) | std::uint64_t{incoming.packet.serial} << 8U |
                 std::uint64_t{incoming.packet.to} << 16U);
    }
    digest.add(one->incoming.size());
  }
  for (const std::uint8_t process : filled_) {
    digest.add(process);
  }
  digest.add(all_.size() | filled_.size() << 16U);
}

/// The queue pairs of a connection, as its progress thread has them.
class ModelQueuePairs final : public cpc::QueuePairs {
 public:
  ModelQueuePairs(Fabric& fabric, std::uint8_t process, std::size_t count, bool is_shared) : fabric_(fabric) {
    for (std::size_t i = 0; i < count; ++i) {
      QueuePair& made = fabric.make(process, is_shared);
      ends_.push_back({made.number, made.number});
      handles_.push_back(&made.verbs);
    }
  }
  ~ModelQueuePairs() override {
    for (const cpc::QueuePairEnd& end : ends_) {
      fabric_.destroy(end.qpn);
    }
  }
  [[nodiscard]] const std::vector<cpc::QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return handles_; }
  /// Before connect().
  void must_listen() noexcept { must_listen_ = true; }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<cpc::QueuePairEnd>& ends) override {
    if (fabric_.takes_failure()) {
      return failure("the device of the model refuses RTR");
    }
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      fabric_.connect(ends_[i].qpn, ends[i].qpn, must_listen_);
    }
    return {};
  }
  [[nodiscard]] Status post_handshake() override {
    for (const cpc::QueuePairEnd& end : ends_) {
      fabric_.find(end.qpn)->has_handshake = true;
    }
    return {};
  }
  [[nodiscard]] cpc::HandshakeSlot handshake() const noexcept override {
    cpc::HandshakeSlot slot;
    slot.serial = ends_.front().qpn;
    slot.queues = static_cast<std::uint8_t>(ends_.size());
    return slot;
  }
  void flush() noexcept override {
    for (const cpc::QueuePairEnd& end : ends_) {
      fabric_.flush(end.qpn);
    }
  }

 private:
  Fabric& fabric_;
  std::vector<cpc::QueuePairEnd> ends_;
  std::vector<ibv_qp*> handles_;
  bool must_listen_ = false;
};

}  // namespace fabric::model
