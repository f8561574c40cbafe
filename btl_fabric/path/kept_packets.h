// SPDX-License-Identifier: BSD-3-Clause
//
// Copies of the packets that a device has copied and that are not known to have arrived: if the link breaks, they are sent
// again (link_healing.h). They are made in the place of the packet, which nobody else keeps; and go by batches, as their completions
// come.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fabric {

/// Those of a queue. Belongs to whoever holds the context's lock.
class KeptPackets {
 public:
  /// For at most `most` packets of at most `size` bytes. Memory for a few is taken with the first one, and more when it is full.
  KeptPackets(std::size_t most, std::size_t size) noexcept : most_(most), longest_(record_bytes(size)) {}
  KeptPackets(const KeptPackets&) = delete;
  KeptPackets& operator=(const KeptPackets&) = delete;

  /// There was no memory: some packets are not here, and the link cannot be made anew.
  [[nodiscard]] bool is_lossy() const noexcept { return is_lossy_; }

  /// Where the next packet is to be written; null if there is no memory for it, now and from now on.
  [[nodiscard]] std::byte* place() noexcept {
    if (limit_ - end_ < longest_) [[unlikely]] {
      if (!make_room()) {
        return nullptr;
      }
    }
    return memory_.get() + end_ + sizeof(Record);
  }
  /// It is written there. `in_ring`: to the peer's ring, whose messages have numbers of their own.
  void keep(std::uint32_t number, std::size_t length, bool in_ring = false) noexcept {
    assert(record_bytes(length) <= longest_);
    *reinterpret_cast<Record*>(memory_.get() + end_) = {number, static_cast<std::uint16_t>(length), in_ring};
    end_ += record_bytes(length);
  }
  /// A batch ends with the newest packet.
  void end_batch() noexcept {
    if (memory_) {
      ends_[(first_end_ + ends_count_++) % ends_.size()] = static_cast<std::uint32_t>(end_);
    } else {
      ++batches_before_;
    }
  }
  /// The oldest batch has arrived. `nothing_else`: so have all packets.
  void batch_arrived(bool nothing_else) noexcept {
    if (batches_before_ > 0) {
      --batches_before_;
      return;
    }
    begin_ = ends_[first_end_];
    first_end_ = (first_end_ + 1) % ends_.size();
    --ends_count_;
    if (nothing_else && begin_ == end_) {
      assert(ends_count_ == 0);
      begin_ = end_ = 0;  // so that little memory is used again and again
    }
    set_limit();
  }

  /// All that are here, oldest first: see(number, packet, in_ring). Some may have arrived.
  template <class See>
  void for_each(See see) const {
    for (std::size_t at = begin_; at != end_;) {
      if (is_wrapped() && at >= begin_ && at == wrapped_at_) {
        at = 0;
        continue;
      }
      const auto& record = *reinterpret_cast<const Record*>(memory_.get() + at);
      see(record.number, std::span<const std::byte>(memory_.get() + at + sizeof(Record), record.length),
          record.in_ring);
      at += record_bytes(record.length);
    }
  }

 private:
  struct Record {
    std::uint32_t number;
    std::uint16_t length;
    bool in_ring;
  };
  static constexpr std::size_t record_bytes(std::size_t length) noexcept {
    return sizeof(Record) + (length + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record);
  }
  /// The newest packets are at the beginning of the memory, and the oldest up to `wrapped_at_`.
  [[nodiscard]] bool is_wrapped() const noexcept { return begin_ > end_; }
  /// Of what may be written; with a wrap a byte less than all, so that `begin_` and `end_` are the same when there is nothing.
  void set_limit() noexcept { limit_ = is_wrapped() ? begin_ - 1 : size_; }
  [[nodiscard]] bool make_room() noexcept;
  [[nodiscard]] bool grow() noexcept;
  void move_to(std::unique_ptr<std::byte[]> larger, std::size_t size) noexcept;

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::size_t limit_ = 0;
  std::size_t begin_ = 0;  ///< of the oldest
  std::size_t end_ = 0;    ///< behind the newest
  std::size_t wrapped_at_ = 0;
  std::uint32_t batches_before_ = 0;  ///< under way since before there was memory
  std::vector<std::uint32_t> ends_;   ///< of the others, a ring
  std::size_t first_end_ = 0;
  std::size_t ends_count_ = 0;
  const std::size_t most_;
  const std::size_t longest_;
  bool is_lossy_ = false;
};

}  // namespace fabric
