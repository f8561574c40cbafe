// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/base/dmabuf.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "btl_fabric/base/opal.h"

namespace fabric {

namespace {

/// What has a range of memory, from `offset` on.
struct DmaBuf {
  int fd = -1;
  std::uint64_t offset = 0;
};

/// A function of the program or of a library that is loaded already; null if there is none.
template <class Function>
Function* find(const char* library, const char* name) noexcept {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    found = loaded != nullptr ? dlsym(loaded, name) : nullptr;
  }
  return reinterpret_cast<Function*>(found);
}

/// cuMemGetHandleForAddressRange() of CUDA 11.7 and later, for whole pages.
DmaBuf export_from_cuda(std::uintptr_t base, std::size_t size) noexcept {
  using Export = int(void* handle, unsigned long long address, std::size_t size, int type, unsigned long long flags);
  constexpr int kDmaBufFd = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  static Export* const get_handle = find<Export>("libcuda.so.1", "cuMemGetHandleForAddressRange");
  if (get_handle == nullptr) {
    errno = EOPNOTSUPP;
    return {};
  }
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = base & ~(page - 1);
  const std::uintptr_t end = (base + size + page - 1) & ~(page - 1);
  int fd = -1;
  if (get_handle(&fd, first, end - first, kDmaBufFd, 0) != 0) {
    errno = EINVAL;
    return {};
  }
  return {fd, base - first};
}

/// hsa_amd_portable_export_dmabuf() of ROCm 5.6 and later.
DmaBuf export_from_rocm(std::uintptr_t base, std::size_t size) noexcept {
  using Export = int(const void* address, std::size_t size, int* fd, std::uint64_t* offset);
  static Export* const export_dmabuf = find<Export>("libhsa-runtime64.so.1", "hsa_amd_portable_export_dmabuf");
  if (export_dmabuf == nullptr) {
    errno = EOPNOTSUPP;
    return {};
  }
  DmaBuf made;
  if (export_dmabuf(reinterpret_cast<const void*>(base), size, &made.fd, &made.offset) != 0) {
    errno = EINVAL;
    return {};
  }
  return made;
}

}  // namespace

/// The region keeps the memory, and needs the descriptor no more.
ibv_mr* register_dmabuf(ibv_pd* pd, void* base, std::size_t size, unsigned access) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const bool is_rocm = std::strcmp(accelerator_name(), "rocm") == 0;
  const DmaBuf made = is_rocm ? export_from_rocm(address, size) : export_from_cuda(address, size);
  if (made.fd < 0) {
    return nullptr;
  }
  ibv_mr* const mr = ibv_reg_dmabuf_mr(pd, made.offset, size, address, made.fd, static_cast<int>(access));
  const int error = errno;
  close(made.fd);
  errno = error;
  return mr;
}

}  // namespace fabric
