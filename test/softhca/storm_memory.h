// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a process of test_softhca_storm: at the same address in each, and with words between its parts that nobody
// may write.
#pragma once

#include <sys/mman.h>

#include <cstring>

#include "test/softhca/storm_board.h"

namespace storm {

constexpr size_t kBufferBytes = 24576;  // of a request
constexpr size_t kGuardBytes = 4096;
constexpr size_t kRegionBytes = 16384;  // where another process writes, reads and, behind it, adds
constexpr size_t kRegionWords = kRegionBytes / 8;
constexpr unsigned kShared = 48;     // requests of the shared receive queue, and of that for XRC
constexpr unsigned kDatagrams = 32;  // receive requests
constexpr unsigned kOwn = 8;         // receive requests of a queue pair with a queue of its own
constexpr unsigned kSends = 8;       // outstanding requests of a queue pair
constexpr uint64_t kGuard = 0x6b6b6b6b6b6b6b6b;

/// What lies there, with a guard behind each.
struct Layout {
  uint8_t shared[kShared][kBufferBytes];
  uint64_t guard0[kGuardBytes / 8];
  uint8_t xrc[kShared][kBufferBytes];
  uint64_t guard1[kGuardBytes / 8];
  uint8_t datagrams[kDatagrams][2048];
  uint64_t guard2[kGuardBytes / 8];
  uint8_t own[kPeers][kOwn][kBufferBytes];
  uint64_t guard3[kGuardBytes / 8];
  uint8_t sends[kPeers][2][kSends][kBufferBytes];  // [0]: RC, [1]: XRC
  uint64_t guard4[kGuardBytes / 8];
  uint8_t sent_datagrams[kPeers][2048];
  uint64_t guard5[kGuardBytes / 8];
  struct Target {
    uint64_t region[kRegionWords];
    uint64_t counter;
    uint64_t guard[kGuardBytes / 8];
  } targets[kPeers];
};

/// Writes the words of a message.
inline void write_words(void* to, size_t bytes, const Words& words, uint32_t sequence, size_t first = 0) {
  for (size_t i = 0; i < bytes / 8; ++i) {
    const uint64_t word = words.word(first + i, sequence);
    std::memcpy(static_cast<uint8_t*>(to) + i * 8, &word, 8);
  }
}

/// The first word that is not of that message; bytes / 8 if there is none.
inline size_t first_other_word(const void* at, size_t bytes, const Words& words, uint32_t sequence, size_t first = 0) {
  size_t i = 0;
  for (; i < bytes / 8; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const uint8_t*>(at) + i * 8, 8);
    if (word != words.word(first + i, sequence)) break;
  }
  return i;
}

class Memory {
 public:
  /// Null if it cannot be had.
  static Layout* make() {
    void* const wish =
        reinterpret_cast<void*>(0x200000000000);  // NOLINT: the same in each process, if the kernel agrees
    void* at = mmap(wish, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    auto* const layout = static_cast<Layout*>(at);
    for_guards(*layout, [](uint64_t* guard) {
      for (size_t i = 0; i < kGuardBytes / 8; ++i) guard[i] = kGuard;
      return true;
    });
    return layout;
  }

  static bool guards_are_whole(Layout& layout) {
    return for_guards(layout, [](const uint64_t* guard) {
      for (size_t i = 0; i < kGuardBytes / 8; ++i)
        if (guard[i] != kGuard) return false;
      return true;
    });
  }

 private:
  template <typename F>
  static bool for_guards(Layout& l, F&& f) {
    bool good = f(l.guard0) && f(l.guard1) && f(l.guard2) && f(l.guard3) && f(l.guard4) && f(l.guard5);
    for (auto& target : l.targets) good = good && f(target.guard);
    return good;
  }
};

}  // namespace storm
