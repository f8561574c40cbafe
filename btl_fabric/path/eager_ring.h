// SPDX-License-Identifier: BSD-3-Clause
//
// The two ends of a ring: memory of the receiver that the sender writes small messages into, slot by slot, and that the receiver
// looks at. Neither posts a receive nor takes a completion. Slots come back with whatever goes the other way
// (PacketHeader::notes); a sender that has none uses the queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <utility>

#include "btl_fabric/base/ring_message.h"

namespace fabric {

/// Which of the laps 1, 2, ... 255, 1, ... comes next.
[[nodiscard]] constexpr std::uint8_t next_lap(std::uint8_t lap) noexcept {
  return static_cast<std::uint8_t>(lap % 255 + 1);
}

/// The sender's end. Belongs to whoever holds the context's lock.
class RingSender {
 public:
  struct Slot {
    std::uint64_t end = 0;  ///< the address behind it, at the peer
    std::uint8_t lap = 0;
  };

  /// A message and its trailer may have `most` bytes.
  void open(const RingOffer& offer, std::size_t most) noexcept {
    *this = RingSender();
    offer_ = offer;
    free_ = offer.slots;
    const std::size_t whole = std::min<std::size_t>(offer.slot_size, most) / 8 * 8;
    limit_ = whole >= RingTrailer::kSize ? whole - RingTrailer::kSize + 1 : 0;
  }
  void close() noexcept { *this = RingSender(); }
  /// There is no ring, but messages of up to `most` bytes are to take another way than others too: takes() says so.
  void stand_in(std::size_t most) noexcept {
    *this = RingSender();
    limit_ = most + 1;
    free_ = 1;
  }
  [[nodiscard]] bool is_open() const noexcept { return offer_.slots > 0; }

  /// A slot is free, and a message of `size` bytes fits.
  [[nodiscard]] bool takes(std::size_t size) const noexcept { return size < limit_ && free_ > 0; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return offer_.rkey; }
  /// The next slot. One must be free.
  [[nodiscard]] Slot take() noexcept {
    assert(free_ > 0);
    --free_;
    const Slot slot{offer_.address + (std::uint64_t{next_} + 1) * offer_.slot_size, lap_};
    if (++next_ == offer_.slots) {
      next_ = 0;
      lap_ = next_lap(lap_);
    }
    return slot;
  }
  /// The peer has read so many. False if that cannot be. Of a ring that we have left there may be some to come.
  [[nodiscard]] bool give_back(std::uint16_t count) noexcept {
    if (!is_open()) {
      return true;
    }
    if (count > offer_.slots - free_) {
      return false;
    }
    free_ += count;
    return true;
  }

 private:
  std::size_t limit_ = 0;  ///< messages are smaller; 0: there is no ring
  std::uint32_t free_ = 0;
  std::uint32_t next_ = 0;
  std::uint8_t lap_ = 1;
  RingOffer offer_;
};

/// The receiver's end. Belongs to whoever holds the context's lock.
class RingReceiver {
 public:
  /// `memory`: slots * slot_size bytes of zeros.
  void open(std::byte* memory, std::uint32_t slots, std::uint32_t slot_size) noexcept {
    *this = RingReceiver();
    memory_ = memory;
    slots_ = slots;
    slot_size_ = slot_size;
  }
  /// Gives the memory back.
  [[nodiscard]] std::byte* close() noexcept {
    assert(readers_ == 0);
    return std::exchange(*this, RingReceiver()).memory_;
  }
  [[nodiscard]] bool is_open() const noexcept { return memory_ != nullptr; }
  [[nodiscard]] std::uint32_t slot_size() const noexcept { return slot_size_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }

  /// The next message is there.
  [[nodiscard]] bool has_arrived() const noexcept {
    auto& last = reinterpret_cast<std::uint8_t&>(trailer()[RingTrailer::kLapAt]);
    return std::atomic_ref(last).load(std::memory_order_acquire) == lap_;
  }
  /// Takes it, and gives its trailer. Its bytes stay until end_reading().
  [[nodiscard]] std::byte* take() noexcept {
    assert(readers_ > 0);
    std::byte* const taken = trailer();
    ++taken_;
    ++read_;
    if (++next_ == slots_) {
      next_ = 0;
      lap_ = next_lap(lap_);
    }
    return taken;
  }

  /// Messages are taken from now on. A callback may do so within another one.
  void begin_reading() noexcept { ++readers_; }
  /// Gives the number of slots that may be written again.
  [[nodiscard]] std::uint32_t end_reading() noexcept { return --readers_ == 0 ? std::exchange(read_, 0) : 0; }
  [[nodiscard]] bool is_read() const noexcept { return readers_ > 0; }

  /// The peer has been asked to leave it, and then: has done so.
  bool is_withdrawn = false;
  bool is_left = false;
  /// How much it is used, for who chooses the peers that get one.
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  std::uint64_t taken_then = 0;
  std::uint64_t looked_at = 0;

 private:
  [[nodiscard]] std::byte* trailer() const noexcept {
    return memory_ + (std::size_t{next_} + 1) * slot_size_ - RingTrailer::kSize;
  }

  std::byte* memory_ = nullptr;
  std::uint32_t slots_ = 0;
  std::uint32_t slot_size_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t read_ = 0;     ///< slots whose messages have been handled, or are
  std::uint32_t readers_ = 0;  ///< calls within each other
  std::uint64_t taken_ = 0;
  std::uint8_t lap_ = 1;
};

}  // namespace fabric
