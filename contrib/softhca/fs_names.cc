// SPDX-License-Identifier: BSD-3-Clause
// libsofthca_fs.so: for programs that look into /dev/infiniband and /sys/class/infiniband before they call verbs (UCX, hwloc).
// Those names lead to $SOFTHCA_DIR, where softhca-run has put files, and the files in /dev look like devices. softhca-run
// preloads it where the machine has no such names (--fs, --no-fs). Any other name costs a few compared characters.
//
// Likewise for programs that load libibverbs or librdmacm with dlopen (NCCL): a preloaded library does not reach the handle that
// they get. They are given libraries of the same names that lead to libsofthca.so.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define SOFTHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

class Name {
 public:
  explicit Name(const char* path) : path_(path) {
    if (path == nullptr || path[0] != '/' || (path[1] != 'd' && path[1] != 's')) [[likely]]
      return;
    device_ = std::strncmp(path, "/dev/infiniband/", 16) == 0;
    if (!device_ && std::strncmp(path, "/dev/infiniband", 15) != 0 &&
        std::strncmp(path, "/sys/class/infiniband", 21) != 0)
      return;
    const char* directory = getenv("SOFTHCA_DIR");
    if (directory != nullptr && snprintf(buffer_, sizeof buffer_, "%s%s", directory, path) < PATH_MAX) path_ = buffer_;
  }
  const char* get() const { return path_; }
  template <typename Stat>
  int shown(int result, Stat* status) const {
    if (result == 0 && device_) status->st_mode = (status->st_mode & ~mode_t{S_IFMT}) | S_IFCHR;
    return result;
  }
  int shown(int result, struct statx* status) const {
    if (result == 0 && device_) status->stx_mode = static_cast<uint16_t>((status->stx_mode & ~S_IFMT) | S_IFCHR);
    return result;
  }

 private:
  const char* path_;
  bool device_ = false;
  char buffer_[PATH_MAX];
};

// The C library's function of that name: looked up once, since that costs more than many a call.
template <typename F>
F* real(F*, std::atomic<void*>& found, const char* name) {
  void* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) [[unlikely]] {
    function = dlsym(RTLD_NEXT, name);
    found.store(function, std::memory_order_relaxed);
  }
  return reinterpret_cast<F*>(function);
}
#define REAL(function)                                  \
  ([] {                                                 \
    static constinit std::atomic<void*> found{nullptr}; \
    return real(function, found, #function);            \
  }())

mode_t mode_in(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

// The library of softhca's for that name, which lies beside this one; empty: there is none.
[[gnu::noinline]] std::string drop_in_for(const char* file) {
  const char* slash = std::strrchr(file, '/');
  const char* base = slash != nullptr ? slash + 1 : file;
  const bool verbs = std::strcmp(base, "libibverbs.so.1") == 0 || std::strcmp(base, "libibverbs.so") == 0;
  const bool cm = std::strcmp(base, "librdmacm.so.1") == 0 || std::strcmp(base, "librdmacm.so") == 0;
  Dl_info self{};
  if ((!verbs && !cm) || dladdr(reinterpret_cast<void*>(&drop_in_for), &self) == 0) return {};
  const std::string here(self.dli_fname);
  const std::string drop_in = here.substr(0, here.rfind('/') + 1) + "drop-in/";
  if (std::strncmp(file, drop_in.c_str(), drop_in.size()) == 0) return {};
  return drop_in + (verbs ? "libibverbs.so.1" : "librdmacm.so.1");
}
[[gnu::noinline]] void* open_drop_in(const char* file, int mode) {
  const std::string path = drop_in_for(file);
  return path.empty() ? nullptr : REAL(dlopen)(path.c_str(), mode);
}

}  // namespace

// Where it leads to the C library's, that has to see who called: it searches the caller's RUNPATH. So it is a jump, which compilers
// make of it when they optimize. (test/softhca/dlopen.test)
#ifdef __clang__
#define SOFTHCA_OPTIMIZED
#else
#define SOFTHCA_OPTIMIZED __attribute__((optimize("O2")))
#endif
SOFTHCA_EXPORT SOFTHCA_OPTIMIZED void* dlopen(const char* file, int mode) {
  if (file != nullptr &&
      (std::strstr(file, "libibverbs.so") != nullptr || std::strstr(file, "librdmacm.so") != nullptr))
    if (void* library = open_drop_in(file, mode)) return library;
  return REAL(dlopen)(file, mode);
}

SOFTHCA_EXPORT int stat(const char* path, struct stat* status) noexcept {
  const Name name(path);
  return name.shown(REAL(stat)(name.get(), status), status);
}
SOFTHCA_EXPORT int stat64(const char* path, struct stat64* status) noexcept {
  const Name name(path);
  return name.shown(REAL(stat64)(name.get(), status), status);
}
SOFTHCA_EXPORT int lstat(const char* path, struct stat* status) noexcept {
  const Name name(path);
  return name.shown(REAL(lstat)(name.get(), status), status);
}
SOFTHCA_EXPORT int lstat64(const char* path, struct stat64* status) noexcept {
  const Name name(path);
  return name.shown(REAL(lstat64)(name.get(), status), status);
}
SOFTHCA_EXPORT int fstatat(int directory, const char* path, struct stat* status, int flags) noexcept {
  const Name name(path);
  return name.shown(REAL(fstatat)(directory, name.get(), status, flags), status);
}
SOFTHCA_EXPORT int fstatat64(int directory, const char* path, struct stat64* status, int flags) noexcept {
  const Name name(path);
  return name.shown(REAL(fstatat64)(directory, name.get(), status, flags), status);
}
SOFTHCA_EXPORT int statx(int directory, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
  const Name name(path);
  return name.shown(REAL(statx)(directory, name.get(), flags, mask, status), status);
}
SOFTHCA_EXPORT int access(const char* path, int mode) noexcept {
  return REAL(access)(Name(path).get(), mode);
}
SOFTHCA_EXPORT int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return REAL(open)(Name(path).get(), flags, mode);
}
SOFTHCA_EXPORT int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return REAL(open64)(Name(path).get(), flags, mode);
}
SOFTHCA_EXPORT int openat(int directory, const char* path, int flags, ...) {  // hwloc's way, with complete paths
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return REAL(openat)(directory, Name(path).get(), flags, mode);
}
SOFTHCA_EXPORT int openat64(int directory, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_in(flags, list);
  va_end(list);
  return REAL(openat64)(directory, Name(path).get(), flags, mode);
}
SOFTHCA_EXPORT FILE* fopen(const char* path, const char* mode) {
  return REAL(fopen)(Name(path).get(), mode);
}
SOFTHCA_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return REAL(fopen64)(Name(path).get(), mode);
}
SOFTHCA_EXPORT DIR* opendir(const char* path) {
  return REAL(opendir)(Name(path).get());
}
