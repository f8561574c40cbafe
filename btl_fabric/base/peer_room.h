// SPDX-License-Identifier: BSD-3-Clause
//
// How much room the queues to each peer have now, for tools that look from outside while others work (counters.h).
#pragma once

#include <cstdint>
#include <span>

#include "common/base/identity.h"

namespace fabric {

/// The queues of one connection, through one port and in one transmit context. Counts are of operations of the largest size.
/// For all threads: what is read may be a moment old, but never half of one number and half of another.
class RoomSource {
 public:
  /// Sends, reads and writes that can be posted now.
  [[nodiscard]] virtual std::uint64_t tx_size_left() const noexcept = 0;
  /// Receives that can be posted now.
  [[nodiscard]] virtual std::uint64_t rx_size_left() const noexcept = 0;

 protected:
  ~RoomSource() = default;
};

/// A place in the list of the process's connections, which it has while something carries messages. A lock of its own guards
/// the list: whoever reads it waits for no thread that works in MPI, and is waited for only while a connection comes or goes.
class RoomListing {
 public:
  RoomListing() = default;
  RoomListing(const RoomListing&) = delete;
  RoomListing& operator=(const RoomListing&) = delete;
  ~RoomListing() { unlist(); }

  /// `source` is asked until unlist(): what it reads must stay.
  void list(const ProcessName& peer, const RoomSource& source) noexcept;
  void unlist() noexcept;

  /// Adds what all that are listed say to the places of their ranks, for peers of `job`. For all threads.
  static void add_up(std::uint32_t job, std::span<unsigned long long> by_rank,
                     std::uint64_t (RoomSource::*question)() const noexcept) noexcept;

 private:
  ProcessName peer_;
  const RoomSource* source_ = nullptr;  ///< null: not in the list
  RoomListing* before_ = nullptr;
  RoomListing* after_ = nullptr;
};

}  // namespace fabric
