// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory of one slot for queues: first fit over a sorted list of free pieces, kept outside of shared memory, so that no other
// process can spoil it. Not on any packet path.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace softhca {

class Arena {
 public:
  // Offsets [begin, end) are free. `commit` backs a piece with memory or says that there is none.
  void reset(uint64_t begin, uint64_t end, std::function<bool(uint64_t, size_t)> commit);

  // Zeroed, aligned to kAlign. 0: none left.
  [[nodiscard]] uint64_t allocate(size_t bytes);
  // The same number of bytes that was asked for.
  void release(uint64_t offset, size_t bytes);

  static constexpr uint64_t kAlign = 256;

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> length
  std::function<bool(uint64_t, size_t)> commit_;
};

}  // namespace softhca
