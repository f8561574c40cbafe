// SPDX-License-Identifier: BSD-3-Clause
//
// Cuts the local memory of an operation into requests. Counting and posting both go through it, so they cannot differ.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/rdma/rdma_planner.h"

namespace fabric {

/// Most pieces of memory of a request, whatever a device takes.
inline constexpr std::uint32_t kMaxRequestSges = 8;

class RdmaSplitter {
 public:
  struct Chunk {
    std::array<ibv_sge, kMaxRequestSges> sges;
    std::array<std::uint8_t, kMaxRequestSges> piece_of;  ///< index of the local piece that an sge lies in
    std::uint32_t count = 0;
    std::uint64_t offset = 0;  ///< into the operation
    std::uint64_t bytes = 0;
  };

  RdmaSplitter(const RdmaOperation& operation, std::uint32_t max_sges, std::uint64_t max_message) noexcept
      : operation_(operation), max_sges_(std::min(max_sges, kMaxRequestSges)), max_message_(max_message) {}

  /// The next request; false when there is none left. An operation of no bytes is one request without memory. The keys
  /// are left to whoever posts.
  bool next(Chunk& chunk) noexcept {
    skip_empty();
    if (piece_ == operation_.pieces && done_) {
      return false;
    }
    done_ = true;
    chunk.count = 0;
    chunk.bytes = 0;
    chunk.offset = offset_;
    while (piece_ < operation_.pieces && chunk.count < max_sges_ && chunk.bytes < max_message_) {
      const LocalMemory& piece = operation_.local[piece_];
      const std::uint64_t part = std::min(piece.length - within_, max_message_ - chunk.bytes);
      chunk.sges[chunk.count] = {reinterpret_cast<std::uintptr_t>(piece.address) + within_,
                                 static_cast<std::uint32_t>(part), 0};
      chunk.piece_of[chunk.count] = piece_;
      ++chunk.count;
      chunk.bytes += part;
      within_ += part;
      skip_empty();
    }
    offset_ += chunk.bytes;
    return true;
  }

  /// Nothing is left.
  [[nodiscard]] bool at_end() const noexcept { return piece_ == operation_.pieces && done_; }

 private:
  void skip_empty() noexcept {
    while (piece_ < operation_.pieces && within_ == operation_.local[piece_].length) {
      ++piece_;
      within_ = 0;
    }
  }

  const RdmaOperation& operation_;
  std::uint32_t max_sges_;
  std::uint64_t max_message_;
  std::uint8_t piece_ = 0;
  std::uint64_t within_ = 0;  ///< the piece
  std::uint64_t offset_ = 0;
  bool done_ = false;
};

}  // namespace fabric
