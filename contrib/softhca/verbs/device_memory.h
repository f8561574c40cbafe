// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Device memory (ibv_alloc_dm(3)): a program reaches it by copies and by regions only. Here it is memory of the process that has
// allocated it, which its children share.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace softhca {

struct Dm : ibv_dm {
  uint8_t* bytes;
  size_t length;                   // as was asked for
  std::atomic<uint32_t> users{0};  // regions, and other handles
  Dm* imported{nullptr};           // this is another handle of that
};

// Another handle of the memory of that number for which `is_it` holds. nullptr and errno: there is none.
ibv_dm* another_handle(ibv_context* context, uint32_t handle, const std::function<bool(const Dm&)>& is_it);
void drop_handle(ibv_dm* dm);

}  // namespace softhca
