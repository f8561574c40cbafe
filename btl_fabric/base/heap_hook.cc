// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/heap_hook.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "btl_fabric/base/opal.h"

namespace fabric {
namespace {

std::atomic<unsigned> calls{0};

/// In place of sbrk(). malloc() and free() call it with locks of theirs held: it must not use them. The program keeps this
/// component in memory for as long as it runs (-z nodelete), as the patch is undone only after the component's end.
void* change_heap(std::intptr_t increment) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  const auto end = static_cast<std::uintptr_t>(syscall(SYS_brk, 0));
  std::uintptr_t new_end = 0;
  if (increment < 0 ? __builtin_sub_overflow(end, -static_cast<std::uintptr_t>(increment), &new_end)
                    : __builtin_add_overflow(end, static_cast<std::uintptr_t>(increment), &new_end)) {
    errno = ENOMEM;
    return reinterpret_cast<void*>(-1);
  }
  if (increment != 0 && brk(reinterpret_cast<void*>(new_end)) != 0) {
    return reinterpret_cast<void*>(-1);
  }
  return reinterpret_cast<void*>(end);
}

bool is_hooked() noexcept {
  const unsigned before = calls.load(std::memory_order_relaxed);
  (void)sbrk(0);
  return calls.load(std::memory_order_relaxed) != before;
}

}  // namespace

void hook_heap() noexcept {
  if (opal_patcher == nullptr || opal_patcher->patch_address == nullptr || is_hooked()) {
    return;
  }
  // Not by its name: some releases of Open MPI then refuse what is patched already.
  void* target = dlsym(RTLD_NEXT, "sbrk");
  if (target == nullptr) {
    target = dlsym(RTLD_DEFAULT, "sbrk");
  }
  if (target == nullptr ||
      opal_patcher->patch_address(reinterpret_cast<std::uintptr_t>(target),
                                  reinterpret_cast<std::uintptr_t>(&change_heap)) != OPAL_SUCCESS) {
    opal_output_verbose(
        1, opal_btl_base_framework.framework_output,
        "btl_fabric: sbrk cannot be patched; if messages have wrong contents, set mpi_leave_pinned to 0");
  }
}

}  // namespace fabric
