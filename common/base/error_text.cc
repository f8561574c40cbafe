// SPDX-License-Identifier: BSD-3-Clause
#include "common/base/error_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace fabric {

std::string describe_errno(int error_number) {
  std::string text = std::strerror(error_number);
  rlimit limit{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += " (this process may have " + std::to_string(limit.rlim_cur) + ": raise ulimit -n)";
  } else if (error_number == ENFILE) {
    text += " (all processes of this host together: raise sysctl fs.file-max)";
  }
  return text;
}

bool is_shortage(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS || error_number == ENOMEM;
}

}  // namespace fabric
