// SPDX-License-Identifier: BSD-3-Clause
//
// 4.1 calls PMIx through a table of functions, opal_pmix. Two of them are replaced by ones that start the same operation, and make
// progress until its end is told. (ompi_mpi_finalize() waits for its own fence in this way, since 2.0.)
#include "btl_fabric/base/pmix_waits.h"

#include "btl_fabric/base/opal.h"

#if OPAL_MAJOR_VERSION == 4

#include <unistd.h>

#include <atomic>

namespace fabric {
namespace {

opal_pmix_base_module_fence_fn_t blocking_fence = nullptr;
opal_pmix_base_module_connect_fn_t blocking_connect = nullptr;

/// Of an operation. PMIx's thread tells it.
struct Outcome {
  int status = OPAL_ERROR;
  std::atomic<bool> is_known = false;
};

void end(int status, void* outcome) noexcept {
  auto* const told = static_cast<Outcome*>(outcome);
  told->status = status;
  told->is_known.store(true, std::memory_order_release);  // it may be gone after that
}

/// As OMPI_LAZY_WAIT_FOR_COMPLETION does: others may need the processor.
int wait_for(const Outcome& outcome) noexcept {
  constexpr useconds_t kPause = 100;
  while (!outcome.is_known.load(std::memory_order_acquire)) {
    opal_progress();
    usleep(kPause);
  }
  return outcome.status;
}

int fence_with_progress(opal_list_t* processes, int collect_data) noexcept {
  Outcome outcome;
  if (opal_pmix.fence_nb(processes, collect_data, end, &outcome) != OPAL_SUCCESS) {
    return blocking_fence(processes, collect_data);  // nothing is under way
  }
  return wait_for(outcome);
}

int connect_with_progress(opal_list_t* processes) noexcept {
  Outcome outcome;
  if (opal_pmix.connect_nb(processes, end, &outcome) != OPAL_SUCCESS) {
    return blocking_connect(processes);
  }
  return wait_for(outcome);
}

}  // namespace

void progress_while_pmix_waits() noexcept {
  if (opal_pmix.fence != nullptr && opal_pmix.fence_nb != nullptr && opal_pmix.fence != fence_with_progress) {
    blocking_fence = opal_pmix.fence;
    opal_pmix.fence = fence_with_progress;
  }
  if (opal_pmix.connect != nullptr && opal_pmix.connect_nb != nullptr && opal_pmix.connect != connect_with_progress) {
    blocking_connect = opal_pmix.connect;
    opal_pmix.connect = connect_with_progress;
  }
}

void leave_pmix_waits() noexcept {
  if (opal_pmix.fence == fence_with_progress) {
    opal_pmix.fence = blocking_fence;
  }
  if (opal_pmix.connect == connect_with_progress) {
    opal_pmix.connect = blocking_connect;
  }
}

}  // namespace fabric

#else

namespace fabric {

void progress_while_pmix_waits() noexcept {}
void leave_pmix_waits() noexcept {}

}  // namespace fabric

#endif
