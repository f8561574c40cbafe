// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/spare_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>

namespace fabric {
namespace {

std::atomic<int> spare = -1;

void close_if_open(int fd) noexcept {
  if (fd >= 0) {
    close(fd);
  }
}

}  // namespace

void keep_spare_descriptor() noexcept {
  if (spare.load() < 0) {
    close_if_open(spare.exchange(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  }
}

void drop_spare_descriptor() noexcept {
  close_if_open(spare.exchange(-1));
}

}  // namespace fabric
