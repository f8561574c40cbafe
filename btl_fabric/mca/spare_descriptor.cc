// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/spare_descriptor.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>

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

void with_spare_descriptor(const std::function<void()>& use) {
  bool used = false;
  try {
    std::thread([&use, &used] {
      if (unshare(CLONE_FILES) == 0) {
        close_if_open(spare.load());
        use();
        used = true;
      }
    }).join();
  } catch (const std::exception&) {  // no more threads, or no memory
  }
  if (!used) {
    const bool is_kept = spare.load() >= 0;
    drop_spare_descriptor();
    use();
    if (is_kept) {
      keep_spare_descriptor();
    }
  }
}

}  // namespace fabric
