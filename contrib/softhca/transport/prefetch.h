// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Asks for cache lines that other processors have before they are needed: between two that share no cache, one is on its way as long
// as a hundred instructions take. Any address will do.
#include <cstdint>

namespace softhca {

inline void fetch_to_read(const void* at) {
  __builtin_prefetch(at, 0);
}

inline void fetch_to_write(const void* at) {
#ifdef __x86_64__
  // GCC asks for a line to read instead, unless it may take for granted that the processor knows the instruction. Those that do not
  // ignore it (Intel's manual, volume 2, PREFETCHW).
  asm volatile("prefetchw %0" : : "m"(*static_cast<const uint8_t*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

}  // namespace softhca
