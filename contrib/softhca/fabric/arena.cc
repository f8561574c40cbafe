// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/arena.h"

#include <iterator>
#include <utility>

namespace softhca {
namespace {

constexpr uint64_t rounded(size_t bytes) {
  return (bytes + Arena::kAlign - 1) & ~(Arena::kAlign - 1);
}

}  // namespace

void Arena::reset(uint64_t begin, uint64_t end, std::function<bool(uint64_t, size_t)> commit) {
  std::lock_guard guard(mutex_);
  free_.clear();
  free_[rounded(begin)] = end - rounded(begin);
  commit_ = std::move(commit);
}

uint64_t Arena::allocate(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) return 0;
  const uint64_t needed = rounded(bytes);
  std::lock_guard guard(mutex_);
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    const auto [offset, length] = *piece;
    if (length < needed) continue;
    if (!commit_(offset, needed)) return 0;
    free_.erase(piece);
    if (length > needed) free_[offset + needed] = length - needed;
    return offset;
  }
  return 0;
}

void Arena::release(uint64_t offset, size_t bytes) {
  if (offset == 0) return;
  std::lock_guard guard(mutex_);
  auto piece = free_.emplace(offset, rounded(bytes)).first;
  const auto next = std::next(piece);
  if (next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece == free_.begin()) return;
  const auto before = std::prev(piece);
  if (before->first + before->second == piece->first) {
    before->second += piece->second;
    free_.erase(piece);
  }
}

}  // namespace softhca
