// SPDX-License-Identifier: BSD-3-Clause
#include "common/base/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fabric {
namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR;
constexpr mode_t kPermissions = 07777;

Status check(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) {
    return failure(std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return failure("it is no regular file");
  }
  if (status.st_uid != geteuid()) {
    return failure("it belongs to user " + std::to_string(status.st_uid));
  }
  if ((status.st_mode & kPermissions) != kMode && fchmod(file, kMode) != 0) {
    return failure(std::string("taking it from other users: ") + std::strerror(errno));
  }
  return {};
}

}  // namespace

Result<int> open_private_file(const std::string& path) {
  // O_NONBLOCK: a FIFO would block until somebody opens its other end.
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, kMode);
  if (file < 0) {
    return failure(path + ": " + (errno == ELOOP ? "it is a symbolic link" : std::strerror(errno)));
  }
  if (Status good = check(file); !good) {
    close(file);
    return failure(path, good.error());
  }
  return file;
}

}  // namespace fabric
