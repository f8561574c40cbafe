// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/path/packet_watch.h"

#include <sched.h>

#include <cassert>
#include <new>

namespace fabric {

/// The progress thread has a packet for as long as verbs takes to post it, unless it is put to sleep meanwhile.
bool OpenPacket::take() noexcept {
  State state = State::kOpen;
  while (!state_.compare_exchange_weak(state, State::kTaken, std::memory_order_acquire)) {
    if (state == State::kPosted) {
      return false;
    }
    if (state == State::kTaken) [[unlikely]] {
      sched_yield();
    }
    state = State::kOpen;
  }
  return true;
}

int OpenPacket::post_request() noexcept {
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(queue_pair_, &request_, &refused);
}

int OpenPacket::post() noexcept {
  const int error = take() ? post_request() : error_;
  state_.store(State::kNone, std::memory_order_relaxed);
  return error;
}

int OpenPacket::post_taken() noexcept {
  const int error = post_request();
  state_.store(State::kNone, std::memory_order_relaxed);
  return error;
}

bool OpenPacket::close() noexcept {
  const bool is_posted = !take() && error_ == 0;
  state_.store(State::kNone, std::memory_order_relaxed);
  return is_posted;
}

void OpenPacket::post_if_it_lies() noexcept {
  const std::uint32_t serial = serial_.load(std::memory_order_relaxed);
  if (serial != seen_) {
    seen_ = serial;
    return;
  }
  State state = State::kOpen;
  if (!state_.compare_exchange_strong(state, State::kTaken, std::memory_order_acquire)) {
    return;
  }
  error_ = post_request();
  state_.store(State::kPosted, std::memory_order_release);
}

bool PacketWatch::add(OpenPacket& packet) noexcept try {
  const std::lock_guard guard(mutex_);
  packets_.push_back(&packet);
  packet.place_ = packets_.size() - 1;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void PacketWatch::remove(OpenPacket& packet) noexcept {
  const std::lock_guard guard(mutex_);
  assert(packets_[packet.place_] == &packet);
  packets_[packet.place_] = packets_.back();
  packets_[packet.place_]->place_ = packet.place_;
  packets_.pop_back();
}

[[gnu::cold]] void PacketWatch::start() noexcept {
  if (!is_ticking_.exchange(true, std::memory_order_seq_cst)) {
    start_ticks_();
  }
}

/// Who opens a packet counts it and then looks whether there are ticks; this says that there are none and then looks whether one has
/// been counted. So one of the two sees the other.
bool PacketWatch::tick() noexcept {
  constexpr unsigned kQuietTicks = 50;
  {
    const std::lock_guard guard(mutex_);
    for (OpenPacket* packet : packets_) {
      packet->post_if_it_lies();
    }
  }
  const std::uint32_t opened = opened_.load(std::memory_order_seq_cst);
  quiet_ticks_ = opened == seen_ ? quiet_ticks_ + 1 : 0;
  seen_ = opened;
  if (quiet_ticks_ < kQuietTicks) {
    return true;
  }
  quiet_ticks_ = 0;
  is_ticking_.store(false, std::memory_order_seq_cst);
  return opened_.load(std::memory_order_seq_cst) != seen_ && !is_ticking_.exchange(true, std::memory_order_seq_cst);
}

}  // namespace fabric
