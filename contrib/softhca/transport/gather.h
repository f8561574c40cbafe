// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Walking along lists of memory pieces.
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "device/attributes.h"

namespace softhca {

// Those of a request, a header before them, and one that is cut in two.
constexpr unsigned kMaxPieces = kMaxSge + 2;

inline uint64_t total(std::span<const iovec> list) {
  uint64_t sum = 0;
  for (const iovec& piece : list) sum += piece.iov_len;
  return sum;
}

class IovecCursor {
 public:
  explicit IovecCursor(std::span<const iovec> list) : list_(list) { skip_empty(); }

  // What is left of the piece that it stands in; 0 at the end.
  uint64_t piece() const { return list_.empty() ? 0 : list_[0].iov_len - done_; }
  uint8_t* here() const { return static_cast<uint8_t*>(list_[0].iov_base) + done_; }

  void advance(uint64_t bytes) {
    while (bytes != 0 && !list_.empty()) {
      const uint64_t n = std::min(bytes, piece());
      done_ += n;
      bytes -= n;
      skip_empty();
    }
  }

  // Adds the rest of the list, up to so many bytes, to `out`, which has `count` pieces; returns how many it has then.
  unsigned rest(iovec (&out)[kMaxPieces], uint64_t bytes = UINT64_MAX, unsigned count = 0) const {
    IovecCursor cursor = *this;
    while (bytes != 0 && !cursor.list_.empty() && count < kMaxPieces) {
      const uint64_t n = std::min(bytes, cursor.piece());
      out[count++] = {cursor.here(), n};
      cursor.advance(n);
      bytes -= n;
    }
    return count;
  }

 private:
  void skip_empty() {
    while (!list_.empty() && done_ == list_[0].iov_len) {
      list_ = list_.subspan(1);
      done_ = 0;
    }
  }

  std::span<const iovec> list_;
  uint64_t done_ = 0;
};

// Copies the whole list to one place.
inline void gather(std::span<const iovec> list, uint8_t* to) {
  for (const iovec& piece : list) {
    const auto* from = static_cast<const uint8_t*>(piece.iov_base);
    std::copy_n(from, piece.iov_len, to);
    to += piece.iov_len;
  }
}

}  // namespace softhca
