// SPDX-License-Identifier: BSD-3-Clause
//
// What RDMA operations come to, for tests that keep a copy of the target's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/rdma/rdma_planner.h"

namespace fabric::test {

/// Does to the copy, at `there`, what the operation will do to the memory, since a queue pair keeps its order. `expected`: what
/// is to arrive here; nothing for a write.
inline void foresee(const RdmaOperation& operation, std::byte* there, std::vector<std::byte>& expected) {
  expected.clear();
  if (operation.kind == RdmaKind::kWrite) {
    for (std::size_t i = 0; i < operation.pieces; ++i) {
      std::memcpy(there, operation.local[i].address, operation.local[i].length);
      there += operation.local[i].length;
    }
    return;
  }
  expected.assign(there, there + operation.length());
  if (operation.kind != RdmaKind::kRead) {
    std::uint64_t value = 0;
    std::memcpy(&value, there, 8);
    if (operation.kind == RdmaKind::kFetchAdd) {
      value += operation.operand;
    } else if (value == operation.compare) {
      value = operation.operand;
    }
    std::memcpy(there, &value, 8);
  }
}

}  // namespace fabric::test
