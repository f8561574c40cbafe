// SPDX-License-Identifier: BSD-3-Clause
//
// Packets of several messages are held open for more, and leave with the next call of progress(). What Open MPI calls complete
// must arrive though its sender makes no such call any more: packets that lie are posted by the progress thread. So a packet
// that holds complete messages has its room and its credit before it is opened, and only verbs is called to post it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace fabric {

/// The open packet of a link, as both threads know it.
class OpenPacket {
 public:
  OpenPacket() noexcept {
    request_.sg_list = &piece_;
    request_.num_sge = 1;
    request_.opcode = IBV_WR_SEND;
    request_.send_flags = IBV_SEND_SIGNALED;
  }
  OpenPacket(const OpenPacket&) = delete;
  OpenPacket& operator=(const OpenPacket&) = delete;

  // ---- Whoever holds the context's lock

  /// There is a packet, in registered memory. It is the caller's alone until give().
  void open(ibv_qp* queue_pair, const ibv_sge& packet, std::uint64_t id) noexcept {
    queue_pair_ = queue_pair;
    piece_ = packet;
    request_.wr_id = id;
    serial_.store(serial_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The packet is the caller's alone. False if it has been posted.
  [[nodiscard]] bool take() noexcept;
  /// The same at the first attempt. False also if the progress thread has it.
  [[nodiscard]] bool take_open() noexcept {
    State state = State::kOpen;
    return state_.compare_exchange_strong(state, State::kTaken, std::memory_order_acquire);
  }
  /// It has so many bytes more.
  void grow(std::size_t bytes) noexcept { piece_.length += static_cast<std::uint32_t>(bytes); }
  void give() noexcept { state_.store(State::kOpen, std::memory_order_release); }
  /// Posts it, unless that has been done. There is none then. What ibv_post_send() returned.
  [[nodiscard]] int post() noexcept;
  /// The same of one that is the caller's alone.
  [[nodiscard]] int post_taken() noexcept;
  /// There is none any more. True if it has been posted, and verbs took it.
  [[nodiscard]] bool close() noexcept;

  // ---- Progress thread

  /// Posts the packet if it is still the one that it saw the last time, and nobody is at it.
  void post_if_it_lies() noexcept;

 private:
  friend class PacketWatch;
  enum class State : std::uint8_t { kNone, kOpen, kTaken, kPosted };
  [[nodiscard]] int post_request() noexcept;

  std::atomic<State> state_ = State::kNone;
  std::atomic<std::uint32_t> serial_ = 0;
  // Of whoever has set kTaken
  ibv_qp* queue_pair_ = nullptr;
  ibv_sge piece_{};
  ibv_send_wr request_{};
  int error_ = 0;
  std::uint32_t seen_ = 0;  ///< the progress thread's
  std::size_t place_ = 0;   ///< among the others, PacketWatch's
};

/// All packets that the progress thread looks at.
class PacketWatch {
 public:
  /// `start_ticks`: has tick() called on the progress thread again and again, until it says false. Called by any thread that may
  /// open packets.
  explicit PacketWatch(std::function<void()> start_ticks) : start_ticks_(std::move(start_ticks)) {}
  PacketWatch(const PacketWatch&) = delete;
  PacketWatch& operator=(const PacketWatch&) = delete;

  /// Once for each link that opens packets, and before it goes. False if there is no memory.
  [[nodiscard]] bool add(OpenPacket& packet) noexcept;
  /// One that was added. However many there are, others do not wait for long.
  void remove(OpenPacket& packet) noexcept;

  /// A packet has been opened, and given.
  void opened() noexcept {
    opened_.fetch_add(1, std::memory_order_seq_cst);
    if (!is_ticking_.load(std::memory_order_seq_cst)) [[unlikely]] {
      start();
    }
  }

  /// Posts what lies. False when no packet has been opened for a while. Progress thread only.
  [[nodiscard]] bool tick() noexcept;

 private:
  void start() noexcept;

  const std::function<void()> start_ticks_;
  std::atomic<std::uint32_t> opened_ = 0;  ///< packets so far
  std::atomic<bool> is_ticking_ = false;
  std::mutex mutex_;  ///< taken when links come and go, and by tick()
  std::vector<OpenPacket*> packets_;
  // The progress thread's
  std::uint32_t seen_ = 0;
  unsigned quiet_ticks_ = 0;
};

}  // namespace fabric
