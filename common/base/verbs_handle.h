// SPDX-License-Identifier: BSD-3-Clause
//
// Owners of verbs objects: each is destroyed exactly once, in the reverse order of creation.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "common/base/error_text.h"
#include "common/base/result.h"

namespace fabric {

/// Calls the verbs function that destroys what a unique_ptr holds.
template <auto Destroy>
struct VerbsDeleter {
  template <class T>
  void operator()(T* object) const noexcept {
    Destroy(object);
  }
};

using DeviceContext = std::unique_ptr<ibv_context, VerbsDeleter<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, VerbsDeleter<ibv_dealloc_pd>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_destroy_cq>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, VerbsDeleter<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_destroy_qp>>;

/// "creating a completion queue of 100 entries on rxe0: Cannot allocate memory"
[[nodiscard]] inline tl::unexpected<Error> verbs_failure(const std::string& while_doing, int error_number) {
  return failure(while_doing + ": " + describe_errno(error_number));
}

}  // namespace fabric
