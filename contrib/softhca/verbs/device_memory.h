// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Device memory (ibv_alloc_dm(3)): a program reaches it by copies and by regions only. Here it is memory of the process that has
// allocated it, which its children share.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca {

struct Dm : ibv_dm {
  uint8_t* bytes;
  size_t length;                   // as was asked for
  std::atomic<uint32_t> users{0};  // regions
};

}  // namespace softhca
