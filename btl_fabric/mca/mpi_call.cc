// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/mpi_call.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace fabric {
namespace {

/// MPI's own functions, under the name of its profiling interface too; Fortran's are not: they call those.
std::string_view mpi_name(const char* symbol) noexcept {
  const std::string_view name = symbol != nullptr ? symbol : "";
  return name.substr(0, 5) == "PMPI_" ? name.substr(1) : name.substr(0, 4) == "MPI_" ? name : "";
}

std::string place_in_file(const void* address, const Dl_info& found) {
  const std::string_view path = found.dli_fname != nullptr ? found.dli_fname : "";
  std::array<char, 24> offset{};
  // Of the call, not of what follows it.
  (void)std::snprintf(offset.data(), offset.size(), "+0x%jx",
                      static_cast<std::uintmax_t>(reinterpret_cast<std::uintptr_t>(address) -
                                                  reinterpret_cast<std::uintptr_t>(found.dli_fbase) - 1));
  return std::string(path.substr(path.rfind('/') + 1)) + offset.data();
}

}  // namespace

/// The outermost MPI function is the program's: collective operations of Open MPI call others.
MpiCall mpi_call_of_this_thread() {
  std::array<void*, 64> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  MpiCall call;
  for (int i = 0; i < count; ++i) {
    Dl_info found{};
    const void* const before = static_cast<const char*>(frames[static_cast<std::size_t>(i)]) - 1;
    if (dladdr(before, &found) == 0) {
      continue;
    }
    if (const std::string_view name = mpi_name(found.dli_sname); !name.empty()) {
      call = {std::string(name), {}};
    } else if (!call.function.empty() && call.caller.empty()) {
      call.caller = place_in_file(frames[static_cast<std::size_t>(i)], found);
    }
  }
  return call;
}

}  // namespace fabric
